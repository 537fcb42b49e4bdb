"""Tries this checkout with pairs of MLX and nanobind: does it build, import and pass its tests?

    python tools pairs [MLX,NANOBIND ...]

The pair that pyproject.toml pins comes first, and it alone decides the exit status. Each pair gets
a virtual environment of its own, with packages from an index, and a build without the CPU kernels
for newer instruction sets. Needs Python 3.11 and a C++ compiler.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

import tomllib

ROOT = Path(__file__).parent.parent
# Files that cover every op, its derivatives, MLX's transforms and patching, and take seconds.
NORM = ("compile", "derivatives", "forward", "layouts", "nn", "threads", "vmap")
TESTS = [f"tests/norm/test_{name}.py" for name in NORM] + ["tests/linear/test_linear.py"]
TESTS += [f"tests/patching/test_{name}.py" for name in ("export", "fusion", "patching")]
TOOLS = ("cmake", "hypothesis", "ninja", "numpy", "pytest", "typing_extensions")
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
    match = re.fullmatch(r"([\w.]+),([\w.]+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not MLX,NANOBIND, as in 0.32.4,3.1.0")
    return Pair(*match.groups())


def pinned() -> tuple[Pair, list[str]]:
    """The pair that pyproject.toml pins, and the other requirements of the build."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    versions = dict(re.findall(r"^(mlx|nanobind)==([\w.]+)$", "\n".join(requires), re.M))
    return Pair(**versions), [name for name in requires if "==" not in name]


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


def attempt(pair: Pair, directory: Path, requires: list[str]) -> str:
    """Builds, imports and tests; returns pytest's summary.

    Raises:
        Failed: If one of these steps fails.
    """
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install")
    mlx = f"mlx[cpu]=={pair.mlx}" if sys.platform == "linux" else f"mlx=={pair.mlx}"
    settings = (
        f"--config-settings=build-dir={directory / 'build'}",
        "--config-settings=cmake.define.MLX_NORMS_CPU_LEVELS=baseline",
    )
    steps = {
        "cannot be installed": (*pip, mlx, f"nanobind=={pair.nanobind}", *TOOLS, *requires),
        "does not build": (*pip, "--no-build-isolation", "--no-deps", *settings, ROOT),
        "builds, does not import": (python, "-P", "-c", "import mlx_norms"),
        "builds, imports, does not pass": (
            *(python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS),
        ),
    }
    for verdict, command in steps.items():
        try:
            output = run(*command, cwd=ROOT)
        except Failed as error:
            raise Failed(f"{verdict}: {error}") from None
    return f"builds, imports, passes: {output.splitlines()[-1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=parse_pair, nargs="*", metavar="MLX,NANOBIND")
    must, requires = pinned()
    status = 0
    for pair in dict.fromkeys([must, *parser.parse_args().pairs]):
        with tempfile.TemporaryDirectory() as directory:
            try:
                verdict = attempt(pair, Path(directory), requires)
            except Failed as error:
                verdict = str(error)
                status |= pair == must
        print(f"mlx {pair.mlx}, nanobind {pair.nanobind}: {verdict}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
