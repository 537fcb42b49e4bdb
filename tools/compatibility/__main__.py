"""For users of other packages: tiny models, patched; found norms that are written and were left.

    python tools compatibility WHEEL [--write] [PACKAGE ...]

Each package gets a new environment that has its MLX already. pip solves for the package and the
wheel together, and must leave MLX as it is; what it chose is installed but for a few large packages
that no norm needs. With no compiler on PATH, tiny models of the package, those of
models/PACKAGE.py, must then give the same outputs and gradients as without the patch. --write puts
all figures into tried.csv and a few into docs/compatibility.md. Before a package's line it prints
what became part of norms.
"""

import argparse
import csv
import datetime
import json
import re
import sys
import tempfile
import venv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from harness import page_part
from mlx_versions import MLX_LM, NEWEST
from pairs import Failed, run

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"
MARKS = (
    "<!-- packages: python tools compatibility WHEEL --write -->\n",
    "<!-- end of packages -->\n",
)
LARGE = re.compile("torch|triton|cuda-.*|nvidia-.*|mlx-cuda-.*|opencv-python")
# Of the largest value: outputs and gradients of float32.
TOLERANCE = 1e-4


class Package(NamedTuple):
    """A package, and the MLX that is installed before it.

    Attributes:
        requirement: What pip installs; without a version, the newest.
        mlx: The release of MLX.
        also: What its models import, and it does not require.
    """

    requirement: str
    mlx: str
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return re.match("[a-z0-9-]+", self.requirement)[0]


PACKAGES = (
    Package("mlx-lm", NEWEST),
    Package(f"mlx-lm=={MLX_LM['0.31.2']}", "0.31.2"),
    Package("mlx-vlm", NEWEST),
    Package("mlx-audio", NEWEST),
    Package("mflux==0.24", "0.32.2"),
    Package("mlx-embeddings", NEWEST, ("mlx-lm",)),
    Package("mlx-video-with-audio", NEWEST),
    *(Package(name, NEWEST) for name in ("mlx-transformers", "mlx-whisper")),
    *(Package(name, NEWEST) for name in ("f5-tts-mlx", "parakeet-mlx")),
)
TRIED = HERE / "tried.csv"
COLUMNS = "package version MLX families outputs gradients ours written on".split()


def shown(rows: list[dict[str, str]]) -> str:
    """The page's table: a line for each package."""
    lines = [
        (
            f"{row['package']} {row['version']}",
            row["MLX"],
            row["ours"],
            f"{row['outputs']}, {row['gradients']}",
        )
        for row in rows
    ]
    return page_part.markdown(("package", "MLX", "norms ours", "outputs, gradients differ"), lines)


def solution(pip: list, wheel: Path, requirements: list[str], file: Path) -> dict[str, str]:
    """The packages that pip would install for all, each with its version."""
    run(*pip, "install", "--quiet", "--dry-run", "--report", file, wheel, *requirements)
    report = json.loads(file.read_text())
    chosen = (item["metadata"] for item in report["install"])
    return {item["name"].lower().replace("_", "-"): item["version"] for item in chosen}


def verdict(found: dict[str, dict]) -> list[str]:
    """What the table says of a run, given what tiny_run.py prints of each family.

    Returns:
        list: The families, the largest differences of outputs and of gradients, how many of the
        norms' calls were ours, and the written norms that were taken, by op.

    Raises:
        Failed: If no call was ours, or outputs or gradients differ.
    """
    runs = found.values()
    calls = sum(run["calls"] for run in runs)
    ours = calls - sum(run["passed_on"] for run in runs)
    written = total(found, "written")
    largest = []
    for key in ("difference", "gradient"):
        wrong = {name: run[key] for name, run in found.items() if not run[key] <= TOLERANCE}
        if wrong or not (ours or written):
            raise Failed(f"{ours} calls are ours, {key}s: {wrong}")
        largest.append(f"{max(run[key] for run in runs):.0e}")
    return [", ".join(found), *largest, f"{ours} of {calls}", named(written) or "-"]


def total(found: dict[str, dict], key: str) -> Counter[str]:
    """What reports count, of all families."""
    return sum((Counter(run[key]) for run in found.values()), Counter())


def named(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.most_common())


def attempt(package: Package, wheel: Path, directory: Path) -> list[str]:
    """Installs and runs; returns the cells of the table.

    Raises:
        Failed: If pip finds no solution or changes MLX, or the outputs differ.
    """
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", f"mlx[cpu]=={package.mlx}")
    requirements = [package.requirement, *package.also]
    chosen = solution(pip, wheel, requirements, directory / "report.json")
    for name in ("mlx", "mlx-cpu"):
        if name in chosen:
            raise Failed(f"pip changes {name} to {chosen[name]}")
    version = chosen[package.name]
    del chosen["mlx-norms"]
    left_out = sorted(name for name in chosen if LARGE.fullmatch(name))
    pinned = [f"{name}=={chosen[name]}" for name in chosen if name not in left_out]
    run(*pip, "install", "--no-deps", wheel, *pinned)
    # MLX itself compiles fused functions of the CPU by g++, if it is not told to leave that.
    variables = {"PATH": str(python.parent), "HF_HUB_OFFLINE": "1", "MLX_DISABLE_COMPILE": "1"}
    output = run(python, "-P", HERE / "tiny_run.py", package.name, env=variables, cwd=directory)
    found = json.loads(output.splitlines()[-1])
    print(named(total(found, "around")))
    cells = verdict(found)
    return [package.name, version, package.mlx, *cells, str(datetime.date.today())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    args = parser.parse_args()
    lines, status = [], 0
    for package in PACKAGES:
        if args.packages and package.name not in args.packages:
            continue
        with tempfile.TemporaryDirectory() as directory:
            try:
                cells = attempt(package, args.wheel.resolve(), Path(directory))
            except Failed as error:
                cells = [package.requirement, "", package.mlx, str(error), ""]
                status = 1
        print(*cells, sep="  ", flush=True)
        lines.append(cells)
    if args.write and status == 0:
        rows = [dict(zip(COLUMNS, line, strict=True)) for line in lines]
        with TRIED.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        page_part.put(shown(rows), PAGE, MARKS, TRIED.name, write=True, check=False)
    return status


if __name__ == "__main__":
    sys.exit(main())
