"""`python -m metalsim FILE.metal`: runs the kernels of a file; prints faults and counts."""

from __future__ import annotations

import argparse
import sys

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .arguments import FORMS, Argument, number
from .compiler import CompileError
from .library import Library
from .msl.tokens import SourceError

OK, FAULTS, UNUSABLE = 0, 1, 2


def main(argv=None) -> int:
    """Runs the command; returns 0, 1 where there were faults, or 2 where a kernel did not run."""
    options = _parser().parse_args(argv)
    console = Console(highlight=False, soft_wrap=True)
    try:
        library = Library(options.file, options.include, options.define, options.check, options.cxx)
        kernels = options.kernel or library.kernels()
        if options.list or not (options.grid or options.groups):
            _list(console, library, kernels)
            return OK
        faults = sum([_run(console, library, kernel, options) for kernel in kernels])
    except (CompileError, SourceError, OSError, KeyError, TypeError, ValueError) as error:
        console.print(escape(str(error.args[0] if isinstance(error, KeyError) else error)))
        return UNUSABLE
    return FAULTS if faults else OK


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m metalsim",
        description="Runs the compute kernels of a Metal source; prints faults and counts.",
        epilog=f"arguments:\n{FORMS}\n\nexit status: 0, 1 with faults, 2 if a kernel did not run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="the .metal file")
    parser.add_argument("kernel", nargs="*", help="host names; default: all kernels of the file")
    parser.add_argument("--list", action="store_true", help="list the kernels and their parameters")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--grid", type=_extent, metavar="N[,N[,N]]", help="threads")
    extent.add_argument("--groups", type=_extent, metavar="N[,N[,N]]", help="threadgroups")
    parser.add_argument(
        "--group", type=_extent, default=(32,), metavar="N[,N[,N]]",
        help="threads a threadgroup (default: 32)",
    )  # fmt: skip
    parser.add_argument(
        "-a", "--arg", type=_pair, action="append", default=[], metavar="NAME=ARGUMENT",
        help="a buffer, by name or index",
    )  # fmt: skip
    parser.add_argument(
        "-c", "--constant", type=_pair, action="append", default=[], metavar="NAME=VALUE",
        help="a function constant, by name or index",
    )  # fmt: skip
    parser.add_argument(
        "-t", "--threadgroup", type=_pair, action="append", default=[], metavar="INDEX=BYTES",
        help="size of a threadgroup argument",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--out", action="append", default=[], metavar="NAME",
        help="a buffer that has to be written completely; its values are printed",
    )  # fmt: skip
    parser.add_argument("--check", type=int, choices=(0, 1, 2), default=2, help="default: 2")
    parser.add_argument(
        "--orders", type=int, default=4, metavar="N", help="run in N schedules (default: 4)"
    )
    parser.add_argument("-I", dest="include", action="append", default=[], metavar="FOLDER")
    parser.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]")
    parser.add_argument("--cxx", help="compiler (default: clang++, else g++)")
    return parser


def _extent(text):
    return tuple(int(n) for n in text.split(","))


def _pair(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' has no '='")
    return (int(name) if name.isdigit() else name), value


def _list(console, library, kernels):
    for kernel in kernels:
        console.print(f"[bold]{escape(kernel)}[/bold]")
        for text in library.parameters(kernel):
            console.print(f"  {escape(text)}")


def _run(console, library, kernel, options) -> int:
    """Launches a kernel in each schedule; returns the number of faults."""
    counts = Table(title=escape(kernel), title_justify="left", title_style="bold")
    for column in ("order", "threads", "groups", "barriers", "SIMD ops", "group bytes", "faults"):
        counts.add_column(column, justify="right")
    found = {}
    for order in range(options.orders):
        arguments = {name: Argument(text) for name, text in options.arg}
        result = library.launch(
            kernel,
            {name: argument.value for name, argument in arguments.items()},
            grid=options.grid,
            groups=options.groups,
            group=options.group,
            constants={name: number(value) for name, value in options.constant},
            tg={index: int(value) for index, value in options.threadgroup},
            out=[int(name) if name.isdigit() else name for name in options.out],
            order=order,
        )
        row = (order, result.threads, result.threadgroups, result.barriers, result.simd_ops)
        row += (result.threadgroup_bytes, len(result.faults))
        counts.add_row(*(f"{n:,}" for n in row))
        for fault in result.faults:
            found.setdefault((fault.kind, fault.file, fault.line, fault.buffer), fault)
    console.print(counts)
    if options.check:
        _print_bytes(console, result)
    for name in options.out:
        key = int(name) if name.isdigit() else name
        values = np.array2string(arguments[key].numbers(), threshold=20, edgeitems=3)
        console.print(f"{escape(name)} = {escape(values)}")
    for fault in found.values():
        console.print(f"[red]{escape(str(fault))}[/red]")
    return len(found)


def _print_bytes(console, result):
    table = Table()
    table.add_column("buffer")
    table.add_column("bytes read", justify="right")
    table.add_column("bytes written", justify="right")
    for name, (read, written) in result.bytes.items():
        table.add_row(escape(name), f"{read:,}", f"{written:,}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
