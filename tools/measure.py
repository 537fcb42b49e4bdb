"""For who judges the layout: files on the way to an op, floors, lines; found how both grew.

    python tools measure

- The files that someone reads to follow an op, from the public function on: those named in PATHS,
  the headers of ours that they include, directly or not, and the .cpp that defines what a header
  declares. Other backends' rooms, and patching, are not on the way.
- The floors of a folder: a file, with its header, stands above what it includes. A folder in it is
  one file. An include that closes a circle runs back up.
- Lines of C++ without what was taken from others, and without the bindings.
- The buffers of each Metal kernel, of at most 31, of those with the most.
- Planted defects that are pinned to a text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
INCLUDE = re.compile(r'^#include "((?:csrc|kernels)/[^"]+)"', re.MULTILINE)
BUFFER = re.compile(r"\[\[buffer\((\d+)\)")
NORM = "csrc/norm/"
ON_METAL = ("csrc/gpu/metal/encode.cpp", "kernels/interface.py", "kernels/join.py")
# What is not on the way to a backend, by a part of the path.
APART = {
    "Metal": ("cuda", "/cpu", "eval_cpu", "patching"),
    "CPU": ("cuda", "csrc/gpu/", "patching", "_plan.cpp", "/plan.cpp"),
}
PYTHON = ("mlx_norms/__init__.py", "mlx_norms/_guard.py")
ROWS = (*PYTHON, "mlx_norms/ops/norms.py", "csrc/python/norm.cpp")
PATHS = {
    "rms_norm on Metal": (*ROWS, *ON_METAL, "kernels/norm/norm.metal"),
    "rms_norm on the CPU": (*ROWS, NORM + "eval_cpu.cpp", NORM + "cpu/fast_rows.cpp"),
    "its gradient on Metal": (
        NORM + "derivatives.cpp",
        NORM + "norm_vjp.cpp",
        NORM + "vjp_plan.cpp",
        *ON_METAL,
        "kernels/norm/vjp/norm_vjp.metal",
    ),
    "group_norm on Metal": (
        *PYTHON,
        "mlx_norms/ops/groups.py",
        "csrc/python/group_norm.cpp",
        *ON_METAL,
        "kernels/group_norm/group_norm.metal",
    ),
    "norm_add_norm on Metal": (
        *PYTHON,
        "mlx_norms/ops/sums.py",
        "csrc/python/norm.cpp",
        *ON_METAL,
        "kernels/norm/norm.metal",
    ),
}
FOLDERS = (
    "csrc/norm",
    "csrc/norm/groups",
    "csrc/linear",
    "csrc/matmul",
    "csrc/gpu",
    "csrc/patching",
)


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def lines(paths: Iterable[str]) -> int:
    return sum(len(text_of(path).splitlines()) for path in paths)


def read_for(entries: Iterable[str], apart: Iterable[str]) -> set[str]:
    """The files, the headers that they include, and what defines these."""
    found, left = set(), list(entries)
    while left:
        path = left.pop()
        # kernels/interface.h is written by the build.
        if path in found or not (ROOT / path).exists() or any(part in path for part in apart):
            continue
        found.add(path)
        left += INCLUDE.findall(text_of(path))
        if path.endswith(".h"):
            left.append(path.removesuffix(".h") + ".cpp")
    return found


def rooms(folder: str) -> dict[str, set[str]]:
    """What each file of the folder, or folder in it, includes of the others."""
    own: dict[str, set[str]] = {}

    def room(path: str) -> str | None:
        if not path.startswith(folder + "/"):
            return None
        first, _, rest = path[len(folder) + 1 :].partition("/")
        return first + "/" if rest else first.rpartition(".")[0]

    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".h", ".cpp"):
            name = path.relative_to(ROOT).as_posix()
            others = {room(other) for other in INCLUDE.findall(path.read_text())}
            own.setdefault(room(name), set()).update(others - {None, room(name)})
    return {name: others & own.keys() for name, others in own.items()}


def floors(above: dict[str, set[str]]) -> tuple[int, list[str]]:
    """How many floors there are, and the includes that run back up."""
    floor: dict[str, int] = {}
    up: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> int:
        if name not in floor:
            heights = [0]
            for other in sorted(above[name]):
                if other in path:
                    up.append(f"{name} -> {other}")
                else:
                    heights.append(visit(other, (*path, other)))
            floor[name] = 1 + max(heights)
        return floor[name]

    return max(visit(name, (name,)) for name in sorted(above)), up


def main() -> None:
    print("| to follow | files | lines |\n| --- | --- | --- |")
    for name, entries in PATHS.items():
        missing = [path for path in entries if not (ROOT / path).exists()]
        if missing:
            sys.exit(f"There is no {missing[0]}: mend PATHS.")
        found = read_for(entries, APART[name.rpartition(" ")[2]])
        print(f"| {name} | {len(found)} | {lines(found):,} |")
    print("\n| folder | floors | includes that run back up |\n| --- | --- | --- |")
    for folder in FOLDERS:
        height, up = floors(rooms(folder))
        print(f"| {folder} | {height} | {', '.join(up) or 'none'} |")
    sources = (path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").rglob("*.[hc]*"))
    ours = [path for path in sources if not path.startswith(("csrc/vendor/", "csrc/python/"))]
    print(f"\ncsrc without vendor and python: {lines(ours):,} lines")
    buffers = {
        path.stem: len(set(BUFFER.findall(path.read_text())))
        for path in (ROOT / "kernels").rglob("*.metal")
    }
    most = sorted(buffers, key=buffers.get, reverse=True)[:5]
    print("buffers: " + ", ".join(f"{name} {buffers[name]}" for name in most))
    pinned = [p.relative_to(ROOT).as_posix() for p in (ROOT / "tools/mutation").rglob("*.py")]
    count = sum(text_of(path).count("    Mutant(\n") for path in pinned)
    print(f"planted defects: {count} pinned to a text, {lines(pinned):,} lines")


if __name__ == "__main__":
    main()
