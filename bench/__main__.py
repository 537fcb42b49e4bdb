"""Runs one of the benchmarks, of the mlx_norms that is installed.

python bench                        lists them
python bench NAME [argument ...]    runs one: norm, backward, ladder, model or another one of here
"""

import ast
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def listed() -> dict[str, str]:
    """The first line of each one's docstring, by its name."""
    files = sorted([*HERE.glob("[!_]*.py"), HERE / "pages" / "__init__.py"])
    docs = {file: ast.get_docstring(ast.parse(file.read_text())) for file in files}
    return {
        file.stem if file.parent == HERE else file.parent.name: doc.splitlines()[0]
        for file, doc in docs.items()
    }


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in listed():
        module = importlib.import_module(name)
        return (module if hasattr(module, "main") else module.SUITE).main()
    for each, line in listed().items():
        print(f"{each:24} {line}")
    return 0 if name in ("", "-h", "--help") else 2


if __name__ == "__main__":
    try:
        import rich  # noqa: F401
    except ImportError:
        sys.exit("bench needs a package: type  pip install rich")
    from mlx_norms.commands import _output

    sys.exit(_output.run_as_process(main))
