"""For those with a Mac: compiles all kernels in Metal 3.1 to 4.1; nobody has run it on one yet.

    python tools macos.compile_metal [VERSION ...]

Needs a Mac with Xcode. Prints a line for each library and version, and what the compiler says. The
exit status is 0 only if all of them compile. A version that the compiler does not know (4.0 needs
Xcode 26, 4.1 needs 27) is NOT RUN, which is a failure if it was asked for by its name.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import metallibs

ROOT = Path(__file__).parents[2]

# The oldest macOS with each, on which MLX compiles the text in that version.
MACOS = {"3.1": "14.0", "3.2": "15.0", "4.0": "26.0", "4.1": "27.0"}
METAL = ("xcrun", "-sdk", "macosx", "metal")
# What 4.1 refuses, in each version; older compilers do not know it.
WARNINGS = ("-Wno-unknown-warning-option", "-Wmetal-addr-spaces")


def run(*command) -> tuple[bool, str]:
    """Whether a command succeeds, and all that it prints."""
    options = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        done = subprocess.run(command, **options)
    except FileNotFoundError as error:
        return False, f"{error.strerror}: {error.filename}"
    return done.returncode == 0, done.stdout.strip()


def compiles(source: Path, version: str) -> tuple[bool, str]:
    """As run, of a text in a version of the language, with the options of the build."""
    options = (f"-std=metal{version}", f"-mmacosx-version-min={MACOS[version]}")
    air = source.with_suffix(".air")
    return run(*METAL, *options, *metallibs.OPTIONS, *WARNINGS, "-c", source, "-o", air)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help=f"of {', '.join(MACOS)} (default: all)"
    )
    asked = parser.parse_args().versions
    versions = asked or list(MACOS)
    if unknown := [version for version in versions if version not in MACOS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(MACOS)}")
    found, compiler = run(*METAL, "--version")
    if not found:
        print(f"There is no Metal compiler: {compiler}")
        return 1
    print(compiler.splitlines()[0])
    status = 0
    with tempfile.TemporaryDirectory() as directory:
        empty = Path(directory, "empty.metal")
        empty.touch()
        texts = Path(directory, "texts")
        texts.mkdir()
        subprocess.run([sys.executable, ROOT / "tools", "join", "metal", texts], check=True)
        for version in versions:
            known, log = compiles(empty, version)
            if not known:
                status |= bool(asked)
                print(f"metal{version}  NOT RUN: this compiler does not know it: {log}")
                continue
            for source in sorted(texts.glob("*.metal")):
                good, log = compiles(source, version)
                status |= not good
                print(f"metal{version}  {source.stem:20} {'compiles' if good else 'FAILED'}")
                if log:
                    print(log.replace(f"{texts}/", ""), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
