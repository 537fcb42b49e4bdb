"""Runs one of the benchmarks, of the mlx_norms that is installed.

python bench                        lists them
python bench WHAT [argument ...]    norm, backward, ladder or model
python bench NAME [argument ...]    another, a script of this folder, such as gpu_speed
"""

import ast
import runpy
import sys
from pathlib import Path

from command import cli
from mlx_norms.commands import _output

HERE = Path(__file__).resolve().parent


def listed() -> dict[str, str]:
    """The first line of each script's docstring, by the script's name."""
    files = sorted(HERE.glob("[!_]*.py"))
    return {f.stem: ast.get_docstring(ast.parse(f.read_text())).splitlines()[0] for f in files}


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in cli.WHAT:
        return _output.run_as_process(cli.main)
    if name in listed():
        del sys.argv[1]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return 0
    for each, line in (cli.WHAT | listed()).items():
        print(f"{each:24} {line}")
    return 0 if name in ("", "-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main())
