"""``python -m mlx_norms COMMAND``: runs one of the modules of :mod:`mlx_norms.commands`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import mlx.core as mx

from . import _built, commands
from .commands import _json, _output

_BENCH = "bench is not in the package: in a checkout of its repository, type  python bench norm"


def main(argv: list[str] | None = None) -> int | Callable[[], int]:
    """Run the command line and return its exit status.

    Args:
        argv: The arguments, those of the process by default.

    Returns:
        int: 0 if the command succeeded, 1 if a check failed, 2 if the command could not run. Or
        a function that the process is to end with, and that returns its exit status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m mlx_norms", description="Normalization kernels for MLX."
    )
    version = f"mlx_norms {_built.VERSION}, mlx {mx.__version__}"
    parser.add_argument("--version", action="version", version=version)
    parser.set_defaults(run=None)
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for name, command in commands.load().items():
        subparser = subparsers.add_parser(name, help=command.SUMMARY, description=command.SUMMARY)
        command.add_arguments(subparser)
        subparser.set_defaults(command=name, run=command.run, parser=subparser)
    if (sys.argv[1:] if argv is None else argv)[:1] == ["bench"]:
        print(_BENCH, file=sys.stderr)
        return 2
    args, unknown = parser.parse_known_args(argv)
    if unknown:  # said by the command, whose usage it is
        (args.parser if args.run else parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if not args.run:
        parser.print_help(sys.stderr)
        return 2
    args.is_process = argv is None
    args.figures = {}
    try:
        return _json.run(args)
    except commands.CommandError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(_output.run_as_process(main))
