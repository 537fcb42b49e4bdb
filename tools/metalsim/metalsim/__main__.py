"""For writers of Metal kernels: runs one and prints its faults; found races in mlx-lm and MLX."""

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
    """Runs the command; returns 0, 1 where there were faults, or 2 where nothing could be run."""
    options = _parser().parse_args(argv)
    console = _console()
    try:
        library = Library(options.file, options.include, options.define, options.check, options.cxx)
        if options.kernel is None:
            if options.grid or options.groups:
                raise ValueError(f"KERNEL is missing; there are: {', '.join(library.kernels())}")
            _list(console, library, options)
            return OK
        faults = _run(console, library, options)
    except (CompileError, SourceError, OSError, KeyError, TypeError, ValueError) as error:
        message = str(error.args[0] if isinstance(error, KeyError) else error)
        _console(stderr=True).print(escape(f"metalsim: {message}"))
        return UNUSABLE
    return FAULTS if faults else OK


def _console(stderr=False):
    # No emoji: ":100:" is the number of a line.
    return Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)


def _parser():
    parser = argparse.ArgumentParser(
        prog="metalsim",
        usage="%(prog)s FILE [KERNEL (--grid N | --groups N) [option ...]]",
        description="Runs a compute kernel of a Metal file on the CPU and reports its faults:\n"
        "data races, accesses out of bounds and others. Without KERNEL, lists the kernels\n"
        "and their arguments.",
        epilog=f"{FORMS}\n\nexit status: 0, 1 with faults, 2 if nothing could be run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the .metal file")
    parser.add_argument("kernel", metavar="KERNEL", nargs="?", help="host name of the kernel")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument(
        "--grid", type=_extent, metavar="N[,N[,N]]", help="threads, as of dispatchThreads"
    )
    extent.add_argument(
        "--groups",
        type=_extent,
        metavar="N[,N[,N]]",
        help="threadgroups, as of dispatchThreadgroups",
    )
    parser.add_argument(
        "--group", type=_extent, default=(32,), metavar="N[,N[,N]]",
        help="threads per threadgroup (default: 32)",
    )  # fmt: skip
    parser.add_argument(
        "-a", "--arg", type=_pair, action="append", default=[], metavar="NAME=VALUE",
        help="a buffer argument, by name or index",
    )  # fmt: skip
    parser.add_argument(
        "-c", "--constant", type=_pair, action="append", default=[], metavar="NAME=VALUE",
        help="a function constant, by name or index",
    )  # fmt: skip
    parser.add_argument(
        "-t", "--threadgroup", type=_pair, action="append", default=[], metavar="NAME=BYTES",
        help="size of a threadgroup argument, by name or index",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--out", type=_key, action="append", default=[], metavar="NAME",
        help="an array that the kernel has to write completely; its values are printed",
    )  # fmt: skip
    parser.add_argument(
        "--check", type=int, choices=(0, 1, 2), default=2,
        help="level of the checks (default: 2, all of them)",
    )  # fmt: skip
    parser.add_argument(
        "--orders", type=_count, default=4, metavar="N",
        help="run in N schedules of the threads (default: 4)",
    )  # fmt: skip
    parser.add_argument(
        "--fast-error", type=float, default=0, metavar="X",
        help="results of metal::fast are off by X times what Metal permits (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "-I", dest="include", action="append", default=[], metavar="FOLDER",
        help="folder for #include; FILE's own comes first",
    )  # fmt: skip
    parser.add_argument(
        "-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="macro"
    )
    parser.add_argument(
        "--cxx", metavar="COMPILER", help="default: the first found of clang++ and g++"
    )
    return parser


def _extent(text):
    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form N, N,N or N,N,N") from None


def _count(text):
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no positive number")
    return int(text)


def _key(text):
    return int(text) if text.isdigit() else text


def _pair(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' has no '='")
    return _key(name), value


def _list(console, library, options):
    for kernel in library.kernels():
        console.print(f"[bold]{escape(kernel)}[/bold]")
        for text in library.parameters(kernel):
            console.print(f"  {escape(text)}")
    for name, index in library.constants().items():
        console.print(f"function constant {index}: {escape(name)}")
    if not library.kernels():
        console.print(f"{escape(options.file)} has no kernels")


def _read(what, pairs, read) -> dict:
    """What the options of one kind say, by name or index; errors name the option at fault."""
    values = {}
    for key, text in pairs:
        if key in values:
            raise ValueError(f"{what} '{key}' is given twice")
        try:
            values[key] = read(text)
        except (OSError, ValueError, MemoryError) as error:
            raise ValueError(f"{what} '{key}': {error}") from error
    return values


def _run(console, library, options) -> int:
    """Launches the kernel in each schedule; returns the number of faults."""
    kernel = options.kernel
    library.parameters(kernel)  # first of all there has to be such a kernel
    if not (options.grid or options.groups):
        raise ValueError(f"kernel '{kernel}' needs --grid or --groups")
    constants = _read("function constant", options.constant, number)
    sizes = _read("threadgroup argument", options.threadgroup, _bytes)
    table = Table(title=escape(kernel), title_justify="left", title_style="bold")
    for column in ("order", "threads", "groups", "barriers", "SIMD ops", "group bytes", "faults"):
        table.add_column(column, justify="right")
    found = {}
    for order in range(options.orders):
        arguments = _read("argument", options.arg, Argument)
        for key in options.out:
            if key not in arguments or arguments[key].array is None:
                raise ValueError(f"output '{key}' needs an array, as -a {key}=float32:64:empty")
        result = library.launch(
            kernel,
            {key: argument.value for key, argument in arguments.items()},
            grid=options.grid,
            groups=options.groups,
            group=options.group,
            constants=constants,
            tg=sizes,
            out=options.out,
            order=order,
            fast_error=options.fast_error,
        )
        row = (order, result.threads, result.threadgroups, result.barriers, result.simd_ops)
        row += (result.threadgroup_bytes, len(result.faults))
        table.add_row(*(f"{n:,}" for n in row))
        for fault in result.faults:
            found.setdefault((fault.kind, fault.file, fault.line, fault.buffer), fault)
    console.print(table)
    if options.check:
        _print_bytes(console, result)
    for key in options.out:
        values = np.array2string(arguments[key].numbers(), threshold=20, edgeitems=3)
        console.print(f"{escape(str(key))} = {escape(values)}")
    for fault in found.values():
        console.print(f"[red]{escape(str(fault))}[/red]")
    return len(found)


def _bytes(text):
    if not text.isdigit() or not int(text):
        raise ValueError(f"'{text}' is no size in bytes")
    return int(text)


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
