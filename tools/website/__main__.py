"""For readers: builds the site from the pages and docstrings; finds links that lead nowhere.

    python tools website [--outdir DIR]

Needs furo, myst-parser and Sphinx, as `.ci/extra website` installs them, and an installed package.
A warning is an error, as of a link that leads nowhere in the site; Sphinx's builder linkcheck asks
for the others. `website.browser` looks at the result in Chromium.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from website import source

HERE = Path(__file__).parent


def build(outdir: Path) -> int:
    """Builds the site into a folder; returns Sphinx's exit status."""
    staged = outdir.with_name(f"{outdir.name}_source")
    source.write(staged)
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-c", HERE]
    return subprocess.run([*command, staged, outdir]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = source.ROOT / "build" / "site"
    parser.add_argument("--outdir", type=Path, default=default, help="default: build/site")
    args = parser.parse_args()
    return build(args.outdir)


if __name__ == "__main__":
    sys.exit(main())
