"""What kernels take, as their text declares it: plans are filled in by it, and must give it all."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

import by_value
import interface
import join
from hostmetal.build import for_tests
from metalsim import Library
from msl.declarations import declarations
from msl.preprocess import preprocess
from msl.tokens import SourceError, Tokens
from support.checkout_copy import Copy
from support.cuda_text import stem_of, translation
from support.variant import ROOT

COMPILER = os.environ.get("CXX", "c++")
FORWARD, MATMUL = "tests/norm/test_gradients.py", "tests/matmul/test_matmul.py"


@pytest.fixture
def read(tmp_path):
    """Reads the interfaces of a text, or of several files by name."""

    def read(text, **others):
        for name, text in {"snippet": text, **others}.items():
            file = tmp_path / "kernels" / f"{name}.metal"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        return interface.interfaces(interface.sources(COMPILER, tmp_path))

    return read


PARAMETERS = {
    "device const uchar* x": "Input",
    "const device float* x": "Input",
    "device uchar* x": "Output",
    "constant const int& x": "Scalar<int32_t>",
    "constant uint& x": "Scalar<uint32_t>",
    "constant const float& x": "Scalar<float>",
    "constant const int* x": "Words",
}


@pytest.mark.parametrize("parameter, type", PARAMETERS.items())
def test_types_of_arguments(read, parameter, type):
    k = read(f"""
        kernel void k({parameter} [[buffer(3)]], threadgroup float* shared [[threadgroup(0)]],
                      uint i [[thread_position_in_grid]]) {{}}""")["k"]
    is_word = type.startswith(("Scalar", "Words"))
    assert k.members == {"x": (type, 0 if is_word else 3)}
    assert k.arguments == {"x": None} and not k.constants


def test_indices_that_are_not_written(read):
    k = read("kernel void k(device int* a, device int* b [[buffer(0)]], device int* c) {}")["k"]
    assert {name: index for name, (_, index) in k.members.items()} == {"a": 1, "b": 0, "c": 2}


def test_places_among_words(read):
    """Numbers come before what is six, and the layouts, of which there may be many, at the end."""
    k = read("""
        kernel void k(
            device int* x [[buffer]], constant const int* layouts [[buffer]],
            constant const int& n [[buffer]], constant const int* six [[buffer]],
            constant const float& eps [[buffer]]) {}""")["k"]
    places = {name: index for name, (_, index) in k.members.items() if name != "x"}
    assert places == {"n": 0, "eps": 1, "six": 2, "layouts": 8}
    assert k.arguments["layouts"] == interface.COMPUTED


def test_numbers_follow_the_order_of_a_library(read):
    """Whatever a compiler sees of it."""
    found = read(
        """
        #ifdef __CUDACC__
        constant int of_cuda [[function_constant]];
        #endif
        constant bool second [[function_constant]];
        [[kernel]] void k(
            device int* x [[buffer]],
            device int* y [[buffer, function_constant(second)]],
            constant const int& n [[buffer]]) { x[0] = second; }""",
        another="""
        constant bool first
            [[function_constant]];
        constant bool second [[function_constant]];
        [[kernel]] void other(device int* x [[buffer]]) { x[0] = first + second; }
        [[kernel]] void more(device int* y [[buffer]]) {}""",
    )
    numbers = {
        kernel: {name: index for name, (_, index) in of.members.items()}
        for kernel, of in found.items()
    }
    assert numbers == {
        "k": {"second": 1, "x": 1, "y": 2, "n": 0},
        "other": {"first": 0, "second": 1, "x": 1},
        "more": {"y": 1},
    }


REACHED = {
    "the kernel": ("", "c"),
    "a function": ("inline int f() { return c; }", "f()"),
    "a function's function": ("inline int g() { return c; } inline int f() { return g(); }", "f()"),
    "a template": ("template <int N> inline int f(int n) { return c; }", "f<2>(1)"),
    "a method": ("struct S { int a; int f() const { return c; } };", "S{1}.f()"),
    "a constructor": ("struct S { int a; S() : a(c) {} };", "S().a"),
    "a method of a template": (
        "template <int N> struct S { int f() { return c; } };",
        "S<1>().f()",
    ),
    "a constant": ("constant int d = c * 2;", "d"),
    "an alias": ("struct S { int f() { return c; } }; using T = S;", "T().f()"),
}


@pytest.mark.parametrize("type, cpp", [("bool", "bool"), ("int", "int32_t")])
@pytest.mark.parametrize("text, expression", REACHED.values(), ids=REACHED.keys())
def test_a_constant_by_way_of(read, text, expression, type, cpp):
    found = read(f"""
        constant {type} c [[function_constant(7)]];
        {text}
        kernel void k(device int* x [[buffer(0)]]) {{ x[0] = {expression}; }}
        kernel void other(device int* x [[buffer(0)]]) {{ x[0] = 1; }}""")
    assert found["k"].members == {"x": ("Output", 0), "c": (f"Constant<{cpp}>", 7)}
    assert found["k"].constants == {"c"}
    assert not found["other"].constants


def test_arrays_with_flags(read):
    """An array is bound with the flags of its name, of which one may have a kernel's prefix, and
    with what tells whether it is there."""
    found = read("""
        constant int x_flags [[function_constant(1)]];
        constant int max_x_flags [[function_constant(2)]];
        constant int k_y_flags [[function_constant(3)]];
        constant int z_flags [[function_constant(4)]];
        constant int a_w_flags [[function_constant(5)]];
        constant int b_w_flags [[function_constant(6)]];
        constant bool has_y [[function_constant(7)]];
        constant bool has_v = x_flags > 0;
        constant int v_flags [[function_constant(8)]];
        kernel void k(device int* z, device int* w, device const int* x,
                      device const int* y [[buffer(3), function_constant(has_y)]],
                      constant const int* layouts,
                      device const int* v [[buffer(5), function_constant(has_v)]]) {
          z[0] = x_flags + max_x_flags + k_y_flags + z_flags + a_w_flags + b_w_flags + v_flags; }
        kernel void dense(device const int* x, device int* z) { z[0] = x_flags; }""")
    members = interface.header(found, [])
    for member in (
        "RowsWritten z{{0}, 4}",
        "Output w{1}",
        "Rows x{{2}, 1, 0}",
        "Rows y{{3}, 3, 0, 7}",
        "Rows v{{5}, 8, 0}",
    ):
        assert f"constexpr {member};" in members
    assert "constexpr Input x{0};" in members and "constexpr Output z{1};" in members


def test_words_that_are_no_constants(read):
    """A comment's are none; a variable's name is taken for the constant, which asks for more."""
    found = read("""
        constant int c [[function_constant(0)]];
        kernel void commented(device int* x) { x[0] = 1; /* c */ } // c
        kernel void local(device int* x) { int c = 1; x[0] = c; }""")
    assert not found["commented"].constants
    assert found["local"].constants == {"c"}


def test_texts_without_kernels(read):
    assert read("") == {}
    assert read("constant int c [[function_constant(0)]]; ; struct S; inline int f();") == {}


def test_host_names(read):
    found = read("""
        template <int N> [[kernel]] void many(device int* x) {}
        #define INSTANTIATE(N) \\
          template [[host_name("many_" #N)]] [[kernel]] decltype(many<N>) many<N>;
        #ifdef __CUDACC__
        INSTANTIATE(1)
        #else
        INSTANTIATE(2)
        #endif
        INSTANTIATE(3)
        template <int N> [[kernel]] void none(device int* x) {}
        [[kernel]] void one(device int* x) {}""")
    assert {name: set(of.names) for name, of in found.items()} == {
        "many": {"many_1", "many_2", "many_3"},
        "one": {"one"},
    }


def test_what_is_written(read):
    found = read("""
        constant bool has_y [[function_constant(5)]];
        constant int kind [[function_constant(2)]];
        constant bool has_z = kind > 1;
        [[kernel, max_total_threads_per_threadgroup(256)]] void k(
            device const float* x [[buffer(1)]],
            device const float* y [[buffer(0), function_constant(has_y)]],
            device float* z [[buffer(2), function_constant(has_z)]],
            constant const float& eps [[buffer(3)]]) {}""")
    assert found["k"].members["z"] == ("Output", 2)
    arguments = {"x": None, "y": "has_y", "z": interface.COMPUTED, "eps": None}
    assert found["k"].arguments == arguments
    assert """
struct k {
  static constexpr Constant<bool> has_y{5};
  static constexpr Constant<int32_t> kind{2};
  static constexpr Input y{0};
  static constexpr Input x{1};
  static constexpr Output z{2};
  static constexpr Scalar<float> eps{0};
};
""" in interface.header(found, ["enum Way { kUp = 1 };"])
    assert """
      {{{"k", 256}},
       {{5, "has_y", Kind::Flag, -1}, {2, "kind", Kind::Number, -1}},
       {{0, "eps", Kind::Float, -1}, {1, "x", Kind::Read, -1}, {0, "y", Kind::Read, 5}, \
{2, "z", Kind::Written, -2}}},
""" in interface.source(found)


REFUSED = {
    """
    #ifdef __CUDACC__
    kernel void k(device int* x [[buffer(1)]]) {}
    #else
    kernel void k(device int* x [[buffer(0)]]) {}
    #endif""": "x of kernel k stands for two things",
    "constant int x [[function_constant(0)]]; kernel void k(device int* x [[buffer(0)]]) {}": (
        "x of kernel k stands for two things"
    ),
    "kernel void k(constant const half& x) {}": "x of kernel k is no array, scalar or words",
    "constant float x [[function_constant(0)]]; kernel void k(device int* y) { y[0] = x; }": (
        "function constant x of kernel k is no bool or int with a number"
    ),
    "constant int x [[function_constant(n)]]; kernel void k(device int* y) { y[0] = x; }": (
        "function constant x of kernel k is no bool or int with a number"
    ),
    """
    constant bool has_n [[function_constant(0)]];
    kernel void k(constant const int& n [[buffer(0), function_constant(has_n)]]) {}""": (
        "number n of kernel k depends on has_n"
    ),
    "#include <nothing>\n": "nothing",
}


@pytest.mark.parametrize("text, message", REFUSED.items())
def test_what_is_refused(read, text, message):
    with pytest.raises(SourceError, match=rf"kernels/snippet.metal\b.*{message}"):
        read(text)


def test_kernels_of_two_files_that_differ(read):
    text = "kernel void k(device {} x [[buffer(0)]]) {{}}"
    with pytest.raises(SourceError, match="x of kernel k stands for two things"):
        read(text.format("int*"), another=text.format("const int*"))


PLAN = """
#include "csrc/gpu/rows.h"
#include "kernels/interface.h"
using namespace mlx_norms;
using K = kernels::norm;
void plan(Launch& launch, const mx::array& a, const RowOperand& rows) {
  launch.set(K::rows, 1);
  launch.set(K::no_such, 1); // refused
  launch.set(kernels::norm_vjp::stages, 1);
  launch.set(K::stages, 1); // refused: another kernel's
  launch.set(K::x, a);
  launch.set(K::x, 1); // refused
  launch.set(K::has_residual, true);
  launch.set(K::has_residual, a); // refused
  launch.set(K::eps, a); // refused
  bind_rows(launch, K::x, rows);
  bind_rows(launch, K::normalized, rows); // refused
  bind_rows(launch, K::has_residual, rows); // refused
  bind_rows(launch, K::rows, rows); // refused
  bind_rows(launch, K::normalized, &a, 4);
  bind_rows(launch, K::x, &a, 4); // refused
}
"""


def test_a_plan_that_names_what_its_kernel_lacks_does_not_compile(tmp_path):
    outputs = [tmp_path / "kernels/interface.h", tmp_path / "kernel_needs.cpp"]
    subprocess.run([sys.executable, ROOT / "tools", "interface", COMPILER, *outputs], check=True)
    plan = tmp_path / "plan.cpp"
    plan.write_text(PLAN)
    (mlx,) = importlib.util.find_spec("mlx").submodule_search_locations
    command = [COMPILER, "-std=c++20", "-fsyntax-only", f"-I{ROOT}", f"-I{tmp_path}"]
    command += [f"-I{mlx}/include", plan, outputs[1]]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = {int(line) for line in re.findall(r"plan\.cpp:(\d+):\d+: error", done.stderr)}
    refused = {n for n, line in enumerate(PLAN.splitlines(), 1) if "// refused" in line}
    assert errors == refused
    others = re.findall(r"^(?!.*plan\.cpp:).*: (?:fatal )?error.*", done.stderr, re.M)
    assert not others


def reorder(root):
    """Reverses the buffers of two kernels, and function constants of theirs."""
    for name in ("norm/norm.metal", "matmul/gemv_lines.metal"):
        reverse(root / "kernels" / name, "[[buffer")
    for name in ("norm/norm.metal", "matmul/gemv.h"):
        reverse(root / "kernels" / name, "[[function_constant]]")


def reverse(file, attribute):
    wrapped = re.compile(r"\n +(?=\[\[)")  # a parameter's attribute in a line of its own
    lines = wrapped.sub(" ", file.read_text()).splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if attribute in line]
    for i, line in zip(at, [lines[i] for i in reversed(at)]):
        lines[i] = line
    file.write_text("".join(lines))


def numbers(text, *names):
    return [int(re.search(rf"\b{name} \[\[\w+\((\d+)", text)[1]) for name in names]


@pytest.mark.build
@pytest.mark.instrument
def test_another_order_takes_no_other_edit(tmp_path):
    """And what a plan leaves out is called by its name."""
    for_tests("_ext")
    copy = Copy(tmp_path, reorder)
    copy.python("tools", "join", "metal", "texts")
    changed = (copy.root / "texts/norm.metal").read_text()
    first, last = numbers(join.texts()["norm"], "has_residual", "round_gated")
    assert numbers(changed, "x", "has_residual", "round_gated") == [12, last, first]
    norms = "norm-33 or norm-4097 or options"
    products = "test_plain_and_transposed and gemv"
    output = copy.on_metal(FORWARD, MATMUL, "-k", f"{norms} or {products}")
    assert re.search(r"^\d+ passed", output, re.M)

    copy.replace("csrc/norm/plan.cpp", "  launch.set(K::eps, spec.eps);\n", "")
    copy.replace("csrc/matmul/plan.cpp", "  launch.set(K::x_vectors, x_vectors);\n", "")
    tests = (
        f"{FORWARD}::test_any_number_of_axes",
        f"{MATMUL}::test_plain_and_transposed",
    )
    output = copy.on_metal(*tests, "-k", "axes or gemv", status=1)
    assert "The launch of kernel norm_4_1_512 leaves out its argument eps." in output
    assert "The launch of kernel gemv_columns_1 leaves out its constant x_vectors." in output


@pytest.fixture(scope="module")
def found():
    return interface.interfaces(interface.sources(COMPILER))


def test_every_constant_is_a_kernels(found):
    declared = set()
    for file in [*ROOT.glob("kernels/**/*.metal"), *ROOT.glob("kernels/**/*.h")]:
        declared |= set(join.CONSTANT.findall(file.read_text()))
    assert declared == set().union(*(of.constants for of in found.values()))


def test_no_number_is_written():
    for file in [*ROOT.glob("kernels/**/*.metal"), *ROOT.glob("kernels/**/*.h")]:
        assert not re.search(r"\[\[(buffer|function_constant)\(\d", file.read_text()), file


def test_numbers_of_launches_are_those_of_the_texts(found, tmp_path):
    """Of the libraries' texts and of CUDA's."""
    for library, text in join.texts(cuda=True).items():
        constants = re.findall(r"(\w+)\s+\[\[function_constant\((\d+)\)\]\]", text)
        assert constants == [(name, str(n)) for n, (name, _) in enumerate(constants)]
        (tmp_path / "text.metal").write_text(text)
        kernels = declarations(
            Tokens(preprocess(tmp_path / "text.metal", tmp_path, COMPILER), library)
        ).kernels
        parts = text.split(join.KERNEL)
        buffers = {}
        for name, kernel in kernels.items():
            of = {p.name: p.index for p in kernel.parameters if p.is_buffer}
            assert of.pop("words_") == by_value.BUFFER
            buffers[name] = set(of.values())
            (part,) = (part for part in parts if re.search(rf"\bvoid\s+{name}\(", part))
            of |= {
                name: int(n) for name, n in re.findall(r"(\w+) = .*words_(?:\[| \+ )(\d+)", part)
            }
            members = {name: index for name, (_, index) in found[name].members.items()}
            assert members.items() <= of.items() | {(name, int(n)) for name, n in constants}
        for path in join.libraries(cuda=True)[library]:
            translated = translation(stem_of(path))
            assert {(c.name, c.index) for c in translated.constants} <= {*constants}
            for kernel in translated.kernels:
                of = buffers[kernel.expression.partition("<")[0]]
                assert kernel.parameters.pointers.keys() == of


def test_every_kernel_has_an_entry(found):
    """Those of the libraries' texts and of CUDA's; else its launch is refused."""
    entries = re.findall(r"^ {6}\{\{(\{.*\})\},$", interface.source(found), re.M)
    names = [name for entry in entries for name in re.findall(r'"(\w+)"', entry)]
    assert len(set(names)) == len(names)
    kernels = set()
    for library, text in join.texts(cuda=True).items():
        kernels |= set(Library.from_source(text, name=library).kernels())
    for path in ROOT.glob("kernels/**/*.metal"):
        kernels |= {kernel.name for kernel in translation(stem_of(path)).kernels}
    assert set(names) == kernels


def test_enumerations(tmp_path):
    (tmp_path / "kernels").mkdir()
    for name, value in (("a", 1), ("b", 1), ("c", 2)):
        text = f"enum Way {{ kUp = {value} }};  // of {name}\nenum {name} {{ k{name} = 0 }};\n"
        (tmp_path / f"kernels/{name}.metal").write_text(text)
    with pytest.raises(SourceError, match=r"c.metal:1: another enum Way"):
        interface.enumerations(interface.sources(COMPILER, tmp_path))
    (tmp_path / "kernels/c.metal").unlink()
    found = interface.enumerations(interface.sources(COMPILER, tmp_path))
    assert found["Way"] == "enum Way { kUp = 1 };" and set(found) == {"Way", "a", "b"}
