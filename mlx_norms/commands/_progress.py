"""Progress on the standard error stream, for commands that need only MLX."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

_TERMINAL_SECONDS, _FILE_SECONDS = 0.5, 10.0


class Progress:
    """Shows the current step now and then: in one line of a terminal, otherwise in new lines.

    A thread prints it, so a step that hangs is visible, too.

    Args:
        total: The number of steps.
        stream: The stream to print to.
        every: Seconds between two lines; short on a terminal, long elsewhere.
    """

    def __init__(
        self, total: int, stream: TextIO | None = None, every: float | None = None
    ) -> None:
        self._total = total
        self._stream = stream or sys.stderr  # None if the process has no standard error
        self._on_terminal = bool(self._stream) and self._stream.isatty()
        self._every = every or (_TERMINAL_SECONDS if self._on_terminal else _FILE_SECONDS)
        self._step, self._label = 0, ""
        self._started = time.monotonic()
        self._lock = threading.Lock()  # keeps progress from cutting a line of output
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Progress:
        if self._stream:
            self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        if self._thread.ident:
            self._thread.join()

    def begin(self, label: str) -> None:
        """Begin the next step."""
        self._step, self._label = self._step + 1, label

    def print(self, line: str = "") -> None:
        """Print a line of the command's output, at once."""
        with self._lock:
            self._write("")
            print(line, flush=True)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            with self._lock:
                seconds = time.monotonic() - self._started
                self._write(f"{self._step} of {self._total}, {seconds:.0f} s: {self._label}")
        self._write("")

    def _write(self, text: str) -> None:
        """Show ``text``; an empty one clears the line of a terminal."""
        try:
            if self._on_terminal:
                width = shutil.get_terminal_size().columns - 1
                self._stream.write(f"\r\x1b[2K{text[:width]}")
            elif text:
                self._stream.write(f"{text}\n")
            self._stream.flush()
        except (AttributeError, OSError):
            self._ended.set()  # the stream is closed
