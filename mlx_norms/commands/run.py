"""The command ``run``.

A program gets the process as Python would give it: its arguments, ``sys.path``, standard streams
and exit status. So it is started when everything else of the command line has ended.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import os
import pkgutil
import runpy
import sys
import types
from collections.abc import Callable

from ..patching import patch, report
from . import CommandError

SUMMARY = "Run a Python program with its norms patched, and report what became of them."

_RUNPY = runpy.run_path.__code__.co_filename


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [-h] [--projections] [--no-report] [--] (-m MODULE | SCRIPT) ..."
    parser.add_argument(
        "--projections", action="store_true", help="compute norms with the products that take them"
    )
    parser.add_argument(
        "--no-report", action="store_true", help="do not write the report to the standard error"
    )
    parser.add_argument("-m", action="store_true", dest="is_module", help="run a module, by name")
    # All that follows the options before it, and none of what is in it: so -m has no value.
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="the module's name, or the path of a script, of a folder or of a zip file with a "
        "__main__.py, and then the program's own arguments",
    )
    parser.set_defaults(json=False)  # the standard output is the program's


def run(args: argparse.Namespace) -> Callable[[], int]:
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        raise CommandError("run needs a program: -m and a module's name, or the path of a script.")
    return functools.partial(_start, args, *program)


def _start(args: argparse.Namespace, program: str, *arguments: str) -> int:
    sys.argv = ["-m" if args.is_module else program, *arguments]
    patch(projections=args.projections)
    if not args.no_report:
        atexit.register(_report)
    beginning = _Beginning()
    try:
        if args.is_module:
            runpy.run_module(program, beginning, "__main__", alter_sys=True)
        else:
            beginning.argv0 = program
            # Not normalized: a folder before ".." may be a link.
            _run_path(os.path.join(os.getcwd(), program), beginning)
    except BaseException as error:
        traceback = _of_program(error.__traceback__)
        if traceback is None and isinstance(error, (ImportError, OSError)):
            atexit.unregister(_report)
            reason = str(getattr(error, "strerror", None) or error).rstrip(".")
            print(f"run cannot start {program!r}: {reason}.", file=sys.stderr)
            return 2
        _show_from(traceback)
        raise
    finally:
        if beginning.main is not None:
            # Its threads, and what it has registered to be called at exit, may still need it.
            sys.modules["__main__"] = beginning.main
    return 0


class _Beginning:
    """For runpy the program's first names, which it asks for just before the program begins.

    There are none. But ``sys`` is then as runpy has set it for the program.
    """

    argv0: str | None = None  # if not None, in place of the full path
    main: types.ModuleType | None = None

    def keys(self) -> tuple[()]:
        self.main = sys.modules["__main__"]
        if self.argv0 is not None:
            sys.argv[0] = self.argv0
        return ()


def _run_path(path: str, beginning: _Beginning) -> None:
    is_script = pkgutil.get_importer(path) is None
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        # In place of the current folder, which is there for our own -m. runpy adds any other path.
        sys.path[:1] = [os.path.dirname(os.path.realpath(path))] * is_script
    runpy.run_path(path, beginning, "__main__")


def _of_program(traceback: types.TracebackType) -> types.TracebackType | None:
    """What of a traceback that begins in this file is the program's."""
    while traceback and traceback.tb_frame.f_code.co_filename in (__file__, _RUNPY):
        traceback = traceback.tb_next
    return traceback


def _show_from(traceback: types.TracebackType | None) -> None:
    """Has the exception that ends the process shown with this traceback."""
    hook = sys.excepthook

    def show(kind, error, whole):
        hook(kind, error.with_traceback(traceback), traceback)

    sys.excepthook = show


def _report() -> None:
    with contextlib.suppress(Exception):  # which the program's own end will show
        sys.stdout.flush()
    if sys.__stderr__ is not None:
        print(f"mlx_norms: {report()}", file=sys.__stderr__)
