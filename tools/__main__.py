"""Runs one of the repository's tools, with the folders they share on Python's path.

python tools                       lists them
python tools NAME [argument ...]   runs one, such as mutation or macos.wheel
"""

import ast
import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def listed() -> dict[str, str]:
    """The first line of each tool's docstring, by the tool's name."""
    files = sorted(path for path in HERE.glob("**/*.py") if "tests" not in path.parts)
    names = {}
    for file in files:
        text = file.read_text()
        if '__name__ == "__main__"' in text and file != Path(__file__).resolve():
            name = ".".join(file.relative_to(HERE).with_suffix("").parts)
            name = name.removeprefix("metalsim.").removesuffix(".__main__")
            names[name] = ast.get_docstring(ast.parse(text)).splitlines()[0]
    return names


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        for name, line in listed().items():
            print(f"{name:24} {line}")
        raise SystemExit(0 if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help") else 2)
    sys.path[0] = str(HERE.parent / "tests")
    from support.variant import PATHS, environment

    sys.path[:1] = map(str, PATHS)
    os.environ |= environment()  # also for processes that a tool starts
    name = sys.argv.pop(1)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
