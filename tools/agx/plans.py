"""For writers of launch plans: registers and spills of all kernels; found 89 spills of a product.

    python tools agx.plans            prints a table, as CSV
    python tools agx.plans --write    writes its worst rows to tools/agx/stored/plans.csv
    python tools agx.plans --check    exits with 1 where a kernel is worse than in that file

The calls are in calls.py. --small takes those that CI has time for. A row that is stored has the
worst of a kernel that an op launches, whatever the sizes. Worse is a new spill, fewer threads per
core, 10 % more instructions, or private arrays in memory. --check fails on a row that is missing,
and on one of what is launched no more, too. Exits with 75, and NOT RUN, where the packages cannot
be had.

A kernel is compiled to run with as many threads as it declares as most, whatever a launch has of
them, as Metal has it. --as-launched compiles it for the launch's alone, with more registers.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import join

from . import stored
from .calls import calls
from .launched import launched, names_by_index
from .measure import measure
from .mesa import CHIPS
from .packages import Unavailable, tree

STORED = Path(__file__).parent / "stored" / "plans.csv"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--as-launched", action="store_true")
    given = parser.parse_args()
    try:
        compilers = tree()
    except Unavailable as error:
        print(f"NOT RUN: {error}")
        return 75
    texts = join.texts()
    of_all = launched(texts)
    names = {call.name for call in calls() if call.small or not given.small}
    chosen = {of: [name for name in of_all[of] if name in names] for of in of_all}
    chosen = {of: some for of, some in chosen.items() if some}
    if given.as_launched:
        chosen = {replace(of, exactly=True): some for of, some in chosen.items()}
    measured = measure(compilers, texts, chosen, CHIPS)
    table = stored.rows(measured, chosen)
    if given.write:
        STORED.write_text(stored.write(stored.worst(table)))
    elif given.check:
        old = stored.read(STORED.read_text())
        constants = {name: names_by_index(text, name).values() for name, text in texts.items()}
        found = [*stored.missing(old, of_all), *stored.stale(old, of_all, constants)]
        found += stored.worse(old, table)
        for line in found:
            print(line)
        refused = sum(bool(row["refused"]) for row in table)
        print(f"{len(table)} rows, {refused} of them refused; {len(found)} findings")
        return int(bool(found))
    else:
        print(stored.write(table), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
