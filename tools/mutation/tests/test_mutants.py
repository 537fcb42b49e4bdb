"""What operators find; that pinned defects fit the sources, and the tests to see them exist."""

import ast
import subprocess
from argparse import Namespace
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest

from mutation import __main__ as runner
from mutation.excluded import EXCLUDED
from mutation.mutant import Mutant
from mutation.operators import OPERATORS, sites
from mutation.pinned import METAL_MUTANTS, MUTANTS
from mutation.targets import CPU, METAL, files
from support.variant import ROOT

PINNED = MUTANTS + METAL_MUTANTS
EVERY = [site for file in files(CPU + METAL) for site in sites(file, (ROOT / file).read_text())]

# A statement, and what each operator makes of it.
MADE = {
    "no barrier": ("threadgroup_barrier(mem_flags::mem_threadgroup);", [""]),
    "never": ("if (i < n) {}", ["if (false) {}"]),
    "always": ("if (f(i)) {}", ["if (true) {}"]),
    "part of condition": (
        "f(a && b && (c || d));",
        ["f(a && (c || d));", "f(b && (c || d));", "f(a && b);"]
        + ["f(a && b && (c));", "f(a && b && (d));"],
    ),
    "verdict": ("bool b = x < y;", ["bool b = true;", "bool b = false;"]),
    "no bits": ("k = a | m & 3;", ["k = a;", "k = m & 3;", "k = a | m;"]),
    "no statement": (
        "auto a = b; f(a); x[i] += g(a);",
        ["auto a = b; ; x[i] += g(a);", "auto a = b; f(a); ;"],
    ),
    "no term": ("x = a - b * c + eps;", ["x = a + eps;", "x = a - b * c;"]),
    "no factor": ("x = a + (i - 1) * step;", ["x = a + (i - 1);", "x = a + step;"]),
    "one choice": ("x = a < b ? c : d + e;", ["x = c;", "x = d + e;"]),
    "unwrapped": (
        "x = min(a, round_to<T>(b));",
        ["x = (a);", "x = (round_to<T>(b));", "x = min(a, (b));"],
    ),
    "bound": ("b = i < n && x <= m;", ["b = i <= n && x <= m;", "b = i < n && x < m;"]),
    "first index": ("x = w[i % n] + w[i];", ["x = w[0] + w[i];"]),
    "first pass": ("for (int i = 0; i < n; ++i) {}", ["for (int i = 0; i < 1; ++i) {}"]),
    "other sign": ("x = f(a, -b) - c;", ["x = f(a, b) - c;"]),
    "other constant": ("f(x, true);", ["f(x, false);"]),
    "zero": ("float x = a.b;", ["float x = 0.0f;"]),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators(operator):
    before, after = MADE[operator]
    text = f"void f() {{ {before} }}\n"
    of = [site for site in sites("x.h", text) if site.name.split(":")[2] == operator]
    made = [text[: site.start] + site.new + text[site.stop :] for site in of]
    assert [line[len("void f() { ") : -len(" }\n")] for line in made] == after
    assert of[0].name == f"x.h:f:{operator}:1"


def test_only_what_is_compiled_counts():
    text = "#ifdef __CUDACC__\nvoid f() { a = b + c; }\n#else\nvoid f() { a = b + 1; }\n#endif\n"
    assert {site.old for site in sites("x.h", text)} == {"b + 1", "a = b + 1;"}
    assert sites("x.h", "#define F(a) \\\n  void f() { g(a + 1); }\nint x = 1 + 1;\n") == []


def test_other_functions_leave_names_alone():
    one, other = "void f() { a = b + c; }\n", "bool T::g() const { return !x; }\n"
    names = {site.name for site in sites("x.h", one)}
    more = {site.name for site in sites("x.h", other + one)}
    assert names < more and "x.h:g:verdict:2" in more


def test_every_operator_has_places_and_a_reason():
    assert {site.name.split(":")[2] for site in EVERY} == set(OPERATORS)
    assert all(find.__doc__ for find in OPERATORS.values())
    names = [site.name for site in EVERY]
    assert len(names) == len(set(names)) and all(site.old != site.new for site in EVERY)


@pytest.mark.parametrize("target", CPU + METAL, ids=lambda target: target.files)
def test_targets(target):
    of = [file for metal in (CPU, METAL) for file, t in files(metal).items() if t == target]
    assert all(any(fnmatch(file, pattern) for file in of) for pattern in target.files.split())


@pytest.mark.parametrize("excluded", EXCLUDED, ids=lambda excluded: excluded.key)
def test_what_is_excluded_is_there(excluded):
    assert any(map(excluded.matches, EVERY))


@pytest.mark.parametrize("mutant", PINNED, ids=lambda mutant: mutant.name)
def test_pinned_ones_fit_the_sources(mutant):
    assert mutant.planted() != (ROOT / mutant.file).read_text()


def test_a_text_that_is_not_there_once():
    mutant = Mutant("none", "LICENSE", "MIT License twice", "", "")
    with pytest.raises(ValueError, match="is 0 times in LICENSE, not once"):
        mutant.planted()


@pytest.mark.parametrize(
    "tests", sorted({m.tests for m in PINNED} | {t.tests for t in CPU + METAL})
)
def test_tests_exist(tests):
    for word in tests.split():
        path, *names = word.split("::")
        scope = ast.parse((ROOT / path).read_text()) if path.startswith("tests/") else None
        for name in names:
            (scope,) = [n for n in scope.body if getattr(n, "name", "") == name.partition("[")[0]]


def test_draws():
    def names(draw, seed, pinned=False):
        args = Namespace(metal=True, names=[], pinned=pinned, seed=seed, draw=draw, part=None)
        return [mutant.name for mutant in runner.chosen(args)]

    assert names(5, "a") == names(5, "a") != names(5, "b")
    keys = [name.rpartition(":")[0] for name in names(None, "a") if name.count(":") == 3]
    assert len(keys) == len(set(keys))
    assert sorted(names(None, "a", pinned=True)) == sorted(m.name for m in METAL_MUTANTS)


def test_names():
    args = Namespace(metal=False, names=["D - 1 for D", "csrc/cpu/simd.h:"], seed="", draw=None)
    assert {mutant.file for mutant in runner.chosen(args)} >= {"csrc/cpu/simd.h", MUTANTS[0].file}
    with pytest.raises(SystemExit, match="no mutant is called nobody"):
        runner.chosen(Namespace(metal=False, names=["nobody"]))


A_TEST = "tests/norm/test_x.py::test_y"


@pytest.mark.parametrize(
    "status, output, told",
    [
        (0, "1 passed", ("", "", True)),
        (1, f"FAILED {A_TEST}[a b] - no\n", (f"{A_TEST}[a b]", f"{A_TEST}[a b]", True)),
        (1, f"E x.metal:3:1: error: no\nFAILED {A_TEST} - no", (A_TEST, A_TEST, False)),
        (
            -11,
            f"{A_TEST}[0] PASSED [ 9%]\n{A_TEST}[a b] \n",
            ("a crash, SIGSEGV", f"{A_TEST}[a b]", True),
        ),
        (None, f"{A_TEST} ", ("a test that does not end", A_TEST, True)),
    ],
)
def test_how_tests_ended(status, output, told):
    def pytest(*arguments, **options):
        if status is None:
            raise subprocess.TimeoutExpired("pytest", 1, output.encode())
        return SimpleNamespace(returncode=status, stdout=output.encode())

    assert runner.verdict(SimpleNamespace(pytest=pytest), A_TEST, []) == told


def test_an_error_of_pytest_is_no_catch():
    done = SimpleNamespace(returncode=4, stdout=b"", stderr=b"no such test")
    variant = SimpleNamespace(pytest=lambda *arguments, **options: done)
    with pytest.raises(RuntimeError, match="no such test"):
        runner.verdict(variant, A_TEST, [])


def test_a_test_that_always_fails_catches_nothing(monkeypatch):
    monkeypatch.setattr(runner, "verdict", lambda *_: runner.Verdict("t", "t"))
    mutant = Mutant("none", "LICENSE", "MIT License", "no license", "t")
    source = SimpleNamespace(plant=lambda mutant: None, restore=lambda mutant: None)
    run = runner.Run(SimpleNamespace(compile=lambda: None), source, [])
    run.plant(mutant)
    assert (run.planted, run.survivors) == (1, [])
    run.check_killers()
    assert run.survivors == ["none"]
