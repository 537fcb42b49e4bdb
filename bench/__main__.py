"""Runs one of the benchmarks, of the mlx_norms that is installed.

python bench                        lists them
python bench NAME [argument ...]    runs one: norm, backward, ladder, model or a script of here
"""

import ast
import importlib
import sys
from pathlib import Path

from command import WHAT

HERE = Path(__file__).resolve().parent


def listed() -> dict[str, str]:
    """The first line of each script's docstring, by the script's name."""
    files = sorted([*HERE.glob("[!_]*.py"), HERE / "pages" / "__init__.py"])
    docs = {file: ast.get_docstring(ast.parse(file.read_text())) for file in files}
    return {
        file.stem if file.parent == HERE else file.parent.name: doc.splitlines()[0]
        for file, doc in docs.items()
    }


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in WHAT:
        # Here, as the package is another for builds: its code is this checkout's.
        from command import cli
        from mlx_norms.commands import _output

        return _output.run_as_process(cli.main)
    if name in listed():
        return importlib.import_module(name).main()
    for each, line in (WHAT | listed()).items():
        print(f"{each:24} {line}")
    return 0 if name in ("", "-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main())
