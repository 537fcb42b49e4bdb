"""For readers of the pages: what kernels ask of the memory; holds all their tables of counts.

python tools counts            prints them
python tools counts --check    exits with 1 if a page has another
python tools counts --write    writes them into the pages
"""

import argparse
import json
import sys

from harness import page_part
from support.variant import ROOT

from . import layer_norm_ladder, norms, sgemm_ladder
from .simulated import attached

# The page of each, and what makes it of the simulator.
TABLES = {
    "norms": ("kernels/counts.md", norms.of_rows),
    "group norms": ("kernels/counts.md", norms.of_groups),
    "the layer norm ladder": ("docs/ladders.md", layer_norm_ladder.measure),
    "the SGEMM ladder": ("docs/ladders.md", sgemm_ladder.measure),
}


def measured() -> dict[str, str]:
    """The tables, from a process in which the extension runs on the software device."""
    from hostmetal.build import printed

    return json.loads(printed("-m", "counts", "--measure"))


def put(*, write: bool, check: bool) -> int:
    """Prints, writes or checks the tables; returns the exit status."""
    status = 0
    for name, made in measured().items():
        begin = f"<!-- counts of {name}: python tools counts --write -->\n"
        marks = begin, f"<!-- end of counts of {name} -->\n"
        page = ROOT / TABLES[name][0]
        status |= page_part.put(made, page, marks, "tools counts", write=write, check=check)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="exit with 1 if a page has another")
    how.add_argument("--write", action="store_true", help="write them into the pages")
    how.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        simulator = attached()
        print(json.dumps({name: made(simulator) for name, (_, made) in TABLES.items()}))
        return 0
    return put(write=args.write, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
