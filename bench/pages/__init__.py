"""The parts of README and docs that show what is in bench/results, a module for each table.

python bench pages            prints them
python bench pages --check    exits with 1 if a page says something else
python bench pages --write    writes them into the pages
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

from harness.page_part import Part


def parts() -> dict[str, list[Part]]:
    """The parts by the names of modules."""
    names = sorted(each.name for each in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").PARTS for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python bench pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(parts())}")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--write", action="store_true")
    ways.add_argument("--check", action="store_true")
    args = parser.parse_args(sys.argv[2:])
    if unknown := set(args.names) - parts().keys():
        parser.error(f"no page {', '.join(sorted(unknown))}")
    chosen = [part for name in args.names or parts() for part in parts()[name]]
    return max([part.put(write=args.write, check=args.check) for part in chosen])
