"""For writers of Metal kernels: what Mesa's compiler makes of one; found spills of ropes and gemv.

    python tools agx FILE.metal KERNEL [--constants NAME=VALUE ...] [--group N]

KERNEL is a host name. A function constant is given by name or index, and is 0 if it is not.
--group is the threads of a threadgroup, by default what the kernel declares as most. FILE may
include files from -I; of the kernels in this checkout it is a text that join.py writes.
"""

import argparse
import sys
from pathlib import Path

from metalsim.compiler import find_compiler, preprocess

from .measure import Specialization, measure
from .mesa import CHIPS
from .packages import Unavailable, tree


def constant(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, int({"true": 1, "false": 0}.get(value, value))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("kernel")
    parser.add_argument("--constants", type=constant, nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--group", type=int, nargs="+", metavar="N")
    parser.add_argument("--chip", choices=CHIPS, action="append")
    parser.add_argument("--listing", action="store_true", help="print Mesa's listings, too")
    parser.add_argument("-I", dest="include", type=Path, action="append", default=[])
    given = parser.parse_args()
    group = tuple([*given.group, 1, 1][:3]) if given.group else None
    of = Specialization(given.file.name, given.kernel, tuple(given.constants), group, True)
    include = (given.file.parent, *given.include)
    text = preprocess(given.file.read_text(), of.library, find_compiler(), include)
    texts = {of.library: text}
    chips = given.chip or CHIPS
    try:
        (measured,) = measure(tree(), texts, [of], chips)
    except Unavailable as error:
        print(f"NOT RUN: {error}")
        return 75
    for chip in chips:
        if given.listing:
            print(measured.listings.get(chip, ""))
    for chip, result in measured.by_chip.items():
        if isinstance(result, str):
            print(f"{chip}  refused: {result}")
            continue
        classes = ", ".join(f"{n} {name}" for name, n in result.classes.items() if n)
        print(
            f"{chip}  {result.half_registers} half registers, {result.threads_per_core} threads per"
            f" core, {result.spills}:{result.fills} spills:fills,"
            f" {result.threadgroup_bytes} threadgroup bytes, {result.code_bytes} code bytes\n"
            f"      {result.instructions} instructions: {classes}"
        )
    return int(any(isinstance(result, str) for result in measured.by_chip.values()))


if __name__ == "__main__":
    sys.exit(main())
