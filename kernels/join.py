"""Joins the kernels and their headers into one text without includes but Metal's own.

python kernels/join.py metal OUT     the text
python kernels/join.py cpp OUT       the text as C++, for csrc/metal/kernel_text.h
"""

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
INCLUDE = re.compile(r'^#include "(.*)"$')


def join(path: Path, seen: set[Path]) -> list[str]:
    """The lines of a file with those of the headers it includes, each header once."""
    if path in seen:
        return []
    seen.add(path)
    lines = []
    for line in path.read_text().splitlines():
        if include := INCLUDE.match(line):
            lines += join(ROOT / include[1], seen)
        elif line != "#pragma once":
            lines.append(line)
    return lines


def text() -> str:
    """All kernels in one text.

    Raises:
        ValueError: If it is not ASCII, which Metal's run-time compiler takes only.
    """
    seen: set[Path] = set()
    lines = [line for path in sorted(ROOT.glob("kernels/**/*.metal")) for line in join(path, seen)]
    joined = "\n".join(lines) + "\n"
    if not joined.isascii():
        raise ValueError("the kernels' text is not ASCII")
    return joined


def as_cpp(joined: str) -> str:
    digest = hashlib.sha256(joined.encode()).hexdigest()[:16]
    # Compilers take string literals of 64 KB at most, but join adjacent ones.
    pieces = [joined[i : i + 8192] for i in range(0, len(joined), 8192)]
    literals = "\n".join(f'R"MSL({piece})MSL"' for piece in pieces)
    return (
        '#include "csrc/metal/kernel_text.h"\n\n'
        "namespace mlx_norms {\n\n"
        f'const char* const kernel_text_name = "mlx_norms_{digest}";\n'
        f"const char* const kernel_text = {literals};\n\n"
        "} // namespace mlx_norms\n"
    )


if __name__ == "__main__":
    form, out = sys.argv[1:]
    Path(out).write_text(as_cpp(text()) if form == "cpp" else text())
