"""Where commands write: the standard streams, and files that options name."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator

from . import CommandError

# The characters in our tables that are not ASCII. Units must not be lost.
_ASCII = {"µ": "u", "≥": ">=", "·": "*", "×": "x", "…": "..."}
_ERRORS = "mlx_norms.spell_out"


def run_as_process(main: Callable[[], int | Callable[[], int]]) -> int:
    """Run ``main`` on the standard streams of a process, and return its exit status.

    Characters that a stream's encoding lacks are replaced with ASCII. If the reader closes a
    stream, the process ends silently, as by SIGPIPE. Neither holds of what ``main`` may return, a
    function that is called last.
    """
    codecs.register_error(_ERRORS, _spell_out)
    streams = [(each, each.errors) for each in (sys.stdout, sys.stderr) if each is not None]
    for stream, _ in streams:
        stream.reconfigure(errors=_ERRORS)
    try:
        try:
            result = main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # Not set earlier: a broken pipe of a library's socket must not end the process.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        raise
    if not callable(result):
        return result
    for stream, errors in streams:
        stream.reconfigure(errors=errors)
    return result()


def console(**options):
    """A rich console that leaves a closed pipe to :func:`run_as_process`."""
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            raise  # the exception being handled; rich would exit with 1, which has a meaning here

    return PipedConsole(**options)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal's standard error what takes time while the block runs.

    Output of the block itself would get between these lines.
    """
    progress = console(stderr=True)
    if not progress.is_terminal:
        yield
        return
    with progress.status(what, refresh_per_second=2):  # seldom: the block may be timing something
        yield


def check_file(option: str, path: str | None) -> None:
    """Check now that a file can be written at the end.

    Raises:
        CommandError: If ``path`` cannot be written.
    """
    if not path:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise CommandError(f"{option} {path}: there is no folder {folder}.")
    if os.path.isdir(path):
        raise CommandError(f"{option} {path}: it is a folder.")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise CommandError(f"{option} {path}: it may not be written.")


def check_image(option: str, path: str | None) -> None:
    """The same for an image, for which matplotlib must be installed if ``path`` is given."""
    check_file(option, path)
    if not path:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    ending = os.path.splitext(path)[1].removeprefix(".")
    if ending.lower() not in known:
        raise CommandError(
            f"{option} {path} cannot be written: its name must end in one of "
            f"{', '.join(f'.{known_ending}' for known_ending in known)}."
        )


def line(error: Exception) -> str:
    """An error from any library, in one line."""
    return short(f"{type(error).__name__}: {error}")


def short(text: str) -> str:
    """What any library said, in one line."""
    return textwrap.shorten(text, 400)


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if spelled := _ASCII.get(character):
        return spelled, error.start + 1
    rest = (error.object, error.start, error.start + 1, error.reason)
    return codecs.backslashreplace_errors(UnicodeEncodeError(error.encoding, *rest))
