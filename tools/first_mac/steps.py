"""The steps of `.ci/mac quick`, in their order, each with its limit: twelve minutes in all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import checks, facts, items, metal_api, suite, texts
from .running import Part

LIMIT = 720  # seconds of all steps
_TESTS = 200
_TINY_TESTS = 8
_FOLDERS = ("norm", "rope", "linear", "patching")
_TINY_FILES = (
    "norm/test_short_rows.py",
    "rope/test_norm_rope.py",
    "linear/test_linear.py",
    "patching/test_patching.py",
)
_VALIDATION = {"MTL_DEBUG_LAYER": "1", "METAL_DEVICE_WRAPPER_TYPE": "1"}
NATIVE = "MLX_NORMS_NATIVE_BFLOAT"


@dataclass(frozen=True)
class Machine:
    """What the steps run on: a Mac, or the simulated device, tiny."""

    folder: Path  # where files go
    simulated: bool = False
    stretch: int = 1  # the limits times this, where a device is simulated

    @property
    def backend(self) -> str:
        return "metal-sim" if self.simulated else "metal"


@dataclass(frozen=True)
class Step:
    """Processes that answer one question.

    Attributes:
        seconds: The limit of all of them.
        parts: Makes them; what that raises is the step's verdict.
        together: Whether they may run at once: what times is alone.
        may_end: Whether the limit may end it on a Mac that is well.
    """

    name: str
    about: str
    seconds: int
    parts: Callable[[Machine], list[Part]]
    together: bool = False
    may_end: bool = False


def work(name: str, *arguments: str) -> list[str]:
    """The command of a process of ours."""
    return [sys.executable, "tools", "first_mac", "--work", name, *arguments]


def _one(name: str) -> Callable[[Machine], list[Part]]:
    return lambda machine: [Part(name, work(name))]


def _texts(machine: Machine) -> list[Part]:
    newest = texts.newest()
    others = [version for version in reversed(metal_api.VERSIONS) if version != newest]
    by_version = [
        Part(f"Metal {v}", work("text", v), cannot=texts.cannot(v), share=4 if v == newest else 2)
        for v in (newest, *others)
    ]
    extension = work("extension")
    native = {NATIVE: "1"}
    return [
        by_version[0],
        Part("by the extension", extension, share=2),
        Part("by the extension, native bfloat16", extension, native, 2),
        *by_version[1:],
    ]


def _metallibs(machine: Machine) -> list[Part]:
    try:
        facts.compiler()
    except items.NotRun as error:
        return [Part("metallibs", [], cannot=error.args)]
    return [Part("metallibs", work("metallibs"))]


def _selftest(machine: Machine) -> list[Part]:
    return [Part(name, work("checks", name)) for name in checks.LIBRARIES]


def _validated(machine: Machine) -> list[Part]:
    command = [(name, work("checks", name, "validated")) for name in checks.LIBRARIES]
    return [Part(f"{name}, validated", of, _VALIDATION) for name, of in command]


def _tests(machine: Machine) -> list[Part]:
    # Where all is slow, of a file of each: what is collected takes most of the time there.
    names = _TINY_FILES if machine.simulated else _FOLDERS
    count = (_TINY_TESTS if machine.simulated else _TESTS) // len(_FOLDERS)
    plugins = ["-p", "hostmetal.plugin"] if machine.simulated else []
    options = ["-q", "-p", "no:cacheprovider", "-p", "first_mac.suite", *plugins]
    return [
        Part(
            f"tests/{Path(name).parts[0]}",
            [
                *(sys.executable, "-m", "pytest", *options, "--backend", machine.backend),
                *(
                    f"--junitxml={machine.folder / f'tests_{Path(name).parts[0]}.xml'}",
                    f"tests/{name}",
                ),
            ],
            {suite.TESTS: str(count)},
        )
        for name in names
    ]


def _choices(machine: Machine) -> list[Part]:
    parts = [Part("choices", work("choices"), share=6)]
    for side, value in (("own (today)", "0"), ("native", "1")):
        command = work("native", side)
        parts.append(Part(f"bfloat16, {side}", command, {NATIVE: value}))
    command, name = work("first_calls", "as built (today)"), "first calls, as built"
    parts.append(Part(name, command))
    name = "first calls, without metallibs"
    try:
        copy = texts.without_metallibs(Path(tempfile.mkdtemp(prefix="first_mac_")))
    except items.NotRun as error:
        return [*parts, Part(name, [], cannot=error.args)]
    except Exception as error:
        return [*parts, Part(name, [], cannot=(items.said(error),))]
    path = os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])
    return [*parts, Part(name, work("first_calls", "text"), {"PYTHONPATH": path})]


STEPS = (
    Step("facts", "the machine, and what is installed", 25, _one("facts")),
    Step(
        "texts",
        "each library's text by the run-time compiler, in each version of the language",
        120,
        _texts,
    ),
    Step("metallibs", "the same by Xcode's compiler", 75, _metallibs),
    Step("selftest", "each kernel against float64, a process a library", 120, _selftest, True),
    Step("validation", "the same in one dtype, with Metal's API validation", 80, _validated, True),
    Step("tests", f"{_TESTS} tests of {', '.join(_FOLDERS)}, by shards", 110, _tests, True),
    Step("bench", "bench/mac.py: ours beside MLX's, a row at a time", 70, _one("speed")),
    Step("choices", "what is chosen without a measurement, with its other sides", 70, _choices),
    Step(
        "models",
        "a tiny model, and one of Hugging Face's cache, by compare",
        50,
        _one("models"),
        may_end=True,
    ),
)
assert sum(step.seconds for step in STEPS) <= LIMIT


def listed(name: str, *arguments: str) -> object:
    """The items of a process of ours."""
    from . import choices, models, speed

    if name == "checks":
        library, *how = arguments
        return checks.listed(library, bool(how))
    return {
        "facts": facts.listed,
        "text": texts.by_version,
        "extension": texts.by_extension,
        "metallibs": texts.by_xcode,
        "speed": speed.listed,
        "choices": choices.listed,
        "native": choices.native,
        "first_calls": choices.first_calls,
        "models": models.listed,
    }[name](*arguments)
