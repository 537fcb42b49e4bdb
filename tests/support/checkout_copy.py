"""A changed copy of the checkout, in which tests build and run."""

import os
import shutil
import subprocess
import sys

from . import known_objects
from .variant import PATHS, ROOT

COPIED = ("CMakeLists.txt", "pyproject.toml")
COPIED += ("bench", "csrc", "kernels", "mlx_norms", "tests", "tools")


class Copy:
    """A copy in `directory`; `change` is applied to its root."""

    def __init__(self, directory, change):
        self.root = directory / "checkout"
        copy_checkout(self.root)
        change(self.root)
        # Unchanged files are not compiled again if this checkout has been built.
        self.environment = known_objects.environment(ROOT, self.root, directory / "objects")

    def python(self, *arguments, site="", status=0):
        """Runs Python in the copy, with a package from `site`; returns its output."""
        mine = ("PYTEST_ADDOPTS", "MLX_NORMS_UNDER_TEST")
        environment = {k: v for k, v in os.environ.items() if k not in mine}
        paths = [str(self.root / path.relative_to(ROOT)) for path in PATHS]
        paths = os.pathsep.join(filter(None, [site, *paths]))
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=self.root,
            env=environment | self.environment | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def on_metal(self, *tests, status=0):
        """Builds the simulated device and runs tests on it, with all checks."""
        return self.python("tools", "hostmetal", "2:0", "--", "-q", *tests, status=status)

    def replace(self, file, old, new):
        text = (self.root / file).read_text()
        assert text.count(old) == 1
        (self.root / file).write_text(text.replace(old, new))


def copy_checkout(root):
    root.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, root)
