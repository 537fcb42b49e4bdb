"""What came to C++ after C++14, one planted construct for each."""

import pytest

from metalsim import CompileError, address_spaces, standard

pytestmark = pytest.mark.instrument

HEAD = "#include <metal_stdlib>\nusing namespace metal;\nstruct Pair { int first, second; };\n"
USE = "kernel void k(device int* p) { p[0] = f<2>(p[1]); }"

# In a function of a template `int N` and an int `v`.
NEWER = {
    "constexpr if": "if constexpr (N > 1) { return 1; }",
    "decomposition": "Pair q{1, 2}; auto [a, b] = q;",
    "if initialization": "if (int n = v; n > 1) { return 1; }",
    "static_assert": "static_assert(N > 1);",
    "constexpr on lambda": "auto g = [](int w) constexpr { return w; };",
    "designated": "Pair q{.first = 1};",
    "range-based for loop initialization": "int a[2] = {}; for (int n = 1; int w : a) { v += w; }",
    "hexadecimal": "float x = 0x1p3f;",
    "using enum": "enum class Kind { one }; using enum Kind;",
    "consteval": "if consteval { return 1; }",
}
NEWER_AT_TOP = {
    "nested namespace": "namespace a::b { constant constexpr int n = 1; }",
    "inline variables": "inline constexpr int three = 3;",
    "fold": "template <typename... T> int sum(T... t) { return (t + ...); }",
    "auto": "template <auto n> struct Q {};",
    "class template argument deduction": (
        "template <typename T> struct Of { T v; Of(T v) : v(v) {} };\n"
        "inline int of(int v) { Of o(v); return o.v; }"
    ),
    "template template parameter": "template <template <int> typename T> struct Q {};",
}


def text(statement="", top=""):
    return (
        f"{HEAD}{top}\ntemplate <int N> inline int f(int v) {{\n{statement}\nreturn v; }}\n{USE}\n"
    )


@pytest.fixture(autouse=True, scope="module")
def clang():
    if address_spaces.compiler() is None:
        pytest.skip("instrument missing: clang++, for the standard of MSL")


PLANTED = [(what, text(statement=s), 6) for what, s in NEWER.items()]
PLANTED += [(what, text(top=t), 4 + t.count("\n")) for what, t in NEWER_AT_TOP.items()]


@pytest.mark.parametrize("what, source, line", PLANTED)
def test_what_is_newer_is_found(what, source, line):
    (found,) = standard.check(source)
    assert found.startswith(f"source:{line}: ") and what in found


def test_what_is_of_cpp14_is_not():
    top = """template <typename... T> inline int count(T... v) { return sizeof...(v); }
    template <typename T = float> constant constexpr int wide = sizeof(T) > 2;
    inline auto third() { return 0b11 + 1'000; }"""
    statement = 'auto g = [w = v](auto u) { return u + w; }; static_assert(N > 1, "N");'
    assert standard.check(text(statement, top)) == []


def test_what_no_kernel_takes_is_parsed_all_the_same():
    unused = "template <typename T> void g(T v) { if constexpr (sizeof(T) > 2) { v = 1; } }"
    assert len(standard.check(text(top=unused))) == 1


def test_what_is_no_cpp_at_all():
    with pytest.raises(CompileError, match="source:6:.*nothing"):
        standard.check(text(statement="return nothing;"))


def test_command(tmp_path, capsys):
    (tmp_path / "pair.h").write_text("namespace a::b {}\n")
    path = tmp_path / "k.metal"
    path.write_text('#include "pair.h"\n' + text())
    assert standard.main([str(path)]) == 1
    line = capsys.readouterr().out
    assert line.startswith(f"{tmp_path}/pair.h:1: nested namespace") and line.count("\n") == 1
    path.write_text(text())
    assert standard.main([str(path)]) == 0
