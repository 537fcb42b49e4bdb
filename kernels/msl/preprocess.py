"""A Metal source with its includes and macros expanded."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .tokens import SourceError

_MARKER = re.compile(r'^# (\d+) "(.*?)".*$', re.MULTILINE)


def preprocess(path: Path, root: Path, compiler: str, macros: Sequence[str] = ()) -> str:
    """The text of a file, but for Metal's own headers, with #line markers.

    Args:
        path: the file.
        root: the folder that its includes are relative to.
        compiler: a C++ compiler.
        macros: names that are defined.

    Raises:
        SourceError: the compiler does not preprocess it.
    """
    with tempfile.TemporaryDirectory() as headers:
        for header in ("metal_stdlib", "metal_simdgroup_matrix"):
            Path(headers, header).touch()
        options = ["-E", "-x", "c++", "-nostdinc", "-undef", *(f"-D{name}" for name in macros)]
        options += [f"-I{headers}", f"-I{root}"]
        done = subprocess.run([compiler, *options, path], capture_output=True, text=True)
    if done.returncode:
        raise SourceError(done.stderr)

    def line(marker):
        file = Path(marker[2])
        name = file.relative_to(root) if file.is_relative_to(root) else file.name
        return f'#line {max(int(marker[1]), 1)} "{name}"'

    return _MARKER.sub(line, done.stdout)
