"""Two builds of this package against each other on one machine, by any of the suites here.

    python bench builds OLD NEW NAME [argument ...]

OLD and NEW are folders, each with an installed ``mlx_norms`` (pip install --target); NAME is a
suite, such as norm, with its arguments, such as --only "rms float32". The builds take turns at
whole runs of it, each in a process of its own, as memory placement differs from process to process.
A ratio is the old build's time over the new one's of the side that is ours, run by run: where it is
seen to be below 0.98, the new build is slower, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.results import COLUMNS
from mlx_norms._measure import timing
from mlx_norms._measure.tables import table
from mlx_norms.commands import _output

SLOWER = 0.98
OURS = ("ours", "patched", "pass")
BENCH = Path(__file__).parent
# The code that measures is this checkout's, whichever build it measures.
SCRIPT = """
import runpy, sys
import mlx_norms
mlx_norms.__path__.insert(0, sys.argv[1])
del sys.argv[:2]
sys.path.insert(0, sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def times(build: str, arguments: list[str]) -> dict[tuple[str, ...], float]:
    """Seconds of ours in each case, by its labels and how it was timed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures.csv")
        path = os.pathsep.join([build, *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-c", SCRIPT, str(BENCH.parent / "mlx_norms"), str(BENCH)]
        subprocess.run(
            [*command, *arguments, "--csv", str(file)],
            env=os.environ | {"PYTHONPATH": path},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
    labels = list(rows[0])[: list(rows[0]).index(COLUMNS[0]) + 1]
    return {
        tuple(row[name] for name in labels): float(row["us"]) * 1e-6
        for row in rows
        if row["side"] in OURS
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python bench builds", description=__doc__)
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("name", metavar="NAME")
    of = f"pairs of runs, {timing.ROUNDS} at least (%(default)s)"
    parser.add_argument("--starts", type=int, default=timing.ROUNDS, help=of)
    args, more = parser.parse_known_args(sys.argv[2:])
    taken: dict[str, list] = {args.old: [], args.new: []}
    for build in timing.turns(taken, max(args.starts, timing.ROUNDS)):
        taken[build].append(times(build, [args.name, *more]))
    found, slower = table(f"{args.name}: old / new", ("case",), ("new, µs", "old / new")), 0
    for case in taken[args.new][0]:
        old, new = (timing.Samples(tuple(run[case] for run in of)) for of in taken.values())
        ratio = old.over(new)
        slower += ratio.interval[1] < SLOWER
        spread = new.spread(".4g", 1e6)
        found.add_row(" ".join(case), spread, ratio.text(3, interval=True))
    _output.console().print(found)
    print(f"{slower} of {len(taken[args.new][0])} cases are slower by more than 2 per cent")
    return 1 if slower else 0
