"""Streams that are a terminal, or that nobody reads."""

import io
import os
import subprocess


class Terminal(io.StringIO):
    def isatty(self):
        return True


def for_nobody(command: list) -> tuple[str, int]:
    """What a command says on stderr, and its status, if what it prints has no reader."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    process.stdout.close()
    return process.stderr.read(), process.wait()
