"""For another MLX: builds and tests with it; found dtypes and statistics that older ones differ in.

    python tools pairs [--quick] [--metal] [MLX[,NANOBIND] ...]

By default these are all of tools/mlx_versions.py, whose nanobind goes with a release if none is
given; they decide the exit status. Each pair gets a virtual environment of its own, with packages
from an index, and a build without the CPU kernels for newer instruction sets. --quick builds
without optimization, with what build/ has of those kernels, and runs the smallest tests. --metal
also runs some on the simulated Metal device. Needs a C++ compiler, and clang 16 for Metal.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

from merge_wheels import CPU_LIBRARY
from mlx_versions import BUILD_TOOLS, MLX_LM, NANOBIND, NEWEST

ROOT = Path(__file__).parent.parent
# Those of ops, transforms and patching, and of them files that take seconds.
FOLDERS = ("norm", "linear", "matmul", "group_norm", "ladders", "patching")
TESTS = [f"tests/{name}" for name in FOLDERS]
QUICK = ("compile", "layouts", "nn", "threads", "vmap")
QUICK_TESTS = [f"tests/norm/test_{name}.py" for name in QUICK] + ["tests/linear/test_linear.py"]
QUICK_TESTS += [f"tests/patching/test_{name}.py" for name in ("export", "fusion", "patching")]
METAL_TESTS = [f"tests/norm/test_{name}.py" for name in ("axis", "norm_add_norm")]
TOOLS = (*BUILD_TOOLS, "hypothesis", "numpy", "pytest", "pytest-xdist", "rich")
# Matches the first line of the output of pip, CMake or the compiler that says what is wrong.
REASON = re.compile(
    r"^ *(?:ERROR: )?(No matching distribution.*|Cannot install.*)$"
    r"|^ *(\S+:\d+:\d+: (?:fatal )?error: .*)$"
    r"|^ *CMake Error[^\n]*\n+ *(\S.*)$"
    r"|^ *(ImportError: .*)$",
    re.M,
)


class Pair(NamedTuple):
    """The versions of the two packages."""

    mlx: str
    nanobind: str


class Failed(Exception):
    """A step failed; the text is the reason, in one line."""


def parse_pair(text: str) -> Pair:
    match = re.fullmatch(r"([\w.]+)(?:,([\w.]+))?", text)
    if not match or not (match[2] or match[1] in NANOBIND):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not MLX,NANOBIND, as in {NEWEST},{NANOBIND[NEWEST]}, nor one of "
            f"{', '.join(NANOBIND)}"
        )
    return Pair(match[1], match[2] or NANOBIND[match[1]])


def run(*command, **options) -> str:
    """Runs a command and returns what it printed.

    Raises:
        Failed: If its exit status is not 0.
    """
    options |= dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    done = subprocess.run(command, **options)
    if done.returncode != 0:
        raise Failed(reason(done.stdout, done.returncode))
    return done.stdout


def reason(output: str, status: int) -> str:
    """The most informative line of the output, or the signal that ended the process."""
    if status < 0:
        return f"ended by signal {-status}"
    output = output.replace(f"{ROOT}/", "")
    found = REASON.search(output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return found[found.lastindex] if found else lines[-1] if lines else f"exit status {status}"


def kernels() -> Path | None:
    """The kernels of the CPU of a build of this checkout, if newer than their sources."""
    newest = max(file.stat().st_mtime for file in ROOT.glob("csrc/**/*.*"))
    for library in ROOT.glob(f"build/cp3*/_mlx_*/{CPU_LIBRARY}"):
        objects = library.parents[1].glob("CMakeFiles/mlx_norms_kernels_*.dir/**/*.o")
        if min(file.stat().st_mtime for file in (library, *objects)) > newest:
            return library
    return None


def attempt(pair: Pair, directory: Path, quick: bool, metal: bool) -> str:
    """Builds, imports and tests; returns pytest's summary, or summaries.

    Raises:
        Failed: If one of these steps fails.
    """
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install")
    mlx = f"mlx[cpu]=={pair.mlx}" if sys.platform == "linux" else f"mlx=={pair.mlx}"
    settings = {"build-dir": directory / "build"}
    built = kernels() if quick else None
    if built:
        settings["cmake.define.MLX_NORMS_CPU_LIBRARY"] = built
    else:
        settings["cmake.define.MLX_NORMS_CPU_LEVELS"] = "baseline"
    if quick:
        settings["cmake.define.CMAKE_CXX_FLAGS_RELEASE"] = "-O0"
    options = [f"--config-settings={name}={value}" for name, value in settings.items()]
    tests = QUICK_TESTS if quick else TESTS
    models = f"mlx-lm=={MLX_LM.get(pair.mlx, MLX_LM[NEWEST])}"
    steps = {
        "cannot be installed": (*pip, mlx, f"nanobind=={pair.nanobind}", *TOOLS, models),
        "does not build": (*pip, "--no-build-isolation", "--no-deps", *options, ROOT),
        "builds, does not import": (python, "-P", "-c", "import mlx_norms"),
        "builds, imports, does not pass": (
            *(python, "-P", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *tests),
        ),
    }
    if metal:
        command = (python, "-P", "tools", "hostmetal", "2:0", "--", "-q", "-n", "2", *METAL_TESTS)
        steps["does not pass on simulated Metal"] = command
    passed = []
    for verdict, command in steps.items():
        try:
            output = run(*command, cwd=ROOT)
        except Failed as error:
            raise Failed(f"{verdict}: {error}") from None
        passed += re.findall(r"^\d+ passed.*$", output, re.M)
    return f"builds, imports, passes: {'; on simulated Metal: '.join(passed)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--metal", action="store_true")
    parser.add_argument("pairs", type=parse_pair, nargs="*", metavar="MLX[,NANOBIND]")
    args = parser.parse_args()
    status = 0
    for pair in args.pairs or [Pair(*item) for item in NANOBIND.items()]:
        with tempfile.TemporaryDirectory() as directory:
            try:
                verdict = attempt(pair, Path(directory), args.quick, args.metal)
            except Failed as error:
                verdict = str(error)
                status |= pair in NANOBIND.items()
        print(f"mlx {pair.mlx}, nanobind {pair.nanobind}: {verdict}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
