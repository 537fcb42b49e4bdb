"""The defects fit the sources, and the tests that are to see them exist."""

import ast
import re
from types import SimpleNamespace

import pytest

from mutation import __main__ as runner
from mutation.cpu import MUTANTS
from mutation.metal import METAL_MUTANTS
from mutation.mutant import Mutant
from mutation.patching import PATCHING_MUTANTS
from support.variant import ROOT

EVERY = MUTANTS + PATCHING_MUTANTS + METAL_MUTANTS


@pytest.mark.parametrize("mutants", [MUTANTS + PATCHING_MUTANTS, METAL_MUTANTS])
def test_names_are_unique(mutants):
    """Of those that a run chooses from."""
    names = [mutant.name for mutant in mutants]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.name)
def test_fits_the_sources(mutant):
    runner.check(mutant)
    assert mutant.new != mutant.old


def named(mutant):
    """The files and functions that a mutant's tests name."""
    for word in (mutant.tests or "").split():
        if word.startswith(("tests/", "tools/")):
            path, *parts = word.split("::")
            yield path, [part.partition("[")[0] for part in parts]


@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.name)
def test_its_tests_exist(mutant):
    assert mutant.redundant or [*named(mutant)]
    for path, names in named(mutant):
        scope = ast.parse((ROOT / path).read_text()) if names else None
        assert (ROOT / path).exists()
        for name in names:
            (scope,) = [node for node in scope.body if getattr(node, "name", "") == name]


def test_a_text_that_is_not_there_once():
    mutant = Mutant("none", "LICENSE", "MIT License twice", "", "")
    with pytest.raises(ValueError, match="occurs 0 times in LICENSE, not once"):
        runner.check(mutant)


@pytest.mark.parametrize(
    "status, output, told",
    [
        (0, "1 passed", None),
        (1, "FAILED tests/norm/test_x.py::test_y - it is wrong\n", "tests/norm/test_x.py::test_y"),
        (-11, "", "a crash, SIGSEGV"),
    ],
)
def test_how_tests_ended(status, output, told):
    done = SimpleNamespace(returncode=status, stdout=output, stderr="")
    variant = SimpleNamespace(pytest=lambda *arguments, **options: done)
    assert runner.killer(variant, "tests/norm/test_x.py", []) == told


def test_an_error_of_pytest_is_no_catch():
    done = SimpleNamespace(returncode=4, stdout="", stderr="no such test")
    variant = SimpleNamespace(pytest=lambda *arguments, **options: done)
    with pytest.raises(RuntimeError, match="no such test"):
        runner.killer(variant, "tests/norm/test_x.py", [])


def test_the_readme_names_one_that_there_is():
    text = (ROOT / "tools/mutation/README.md").read_text()
    (name,) = re.findall(r'^python tools mutation "(.*?)"', text, re.M)
    assert name in {mutant.name for mutant in EVERY}
