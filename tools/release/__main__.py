"""For who releases: a tag's checkout, checked, built, tried and described; refuses what disagrees.

    python tools release [STAGE ...] [--mlx RELEASE ...] [--outdir DIR]

check    the tag of this commit, the version and the changelog agree, and nothing is changed
sdist    what wheels are built from
linux    a wheel for this Python and system, for all MLX
macos    the same for Apple silicon, by zig, on any machine; checked, but not run
try      what fits this machine, in an environment of its own for each MLX
notes    the changelog's part, with the packages and their digests

All of them by default, in `dist/VERSION`, for the Python that runs it; other Pythons add theirs to
the same folder. What is there is not built or tried again, so that a stage which was interrupted
goes on. Needs what the extra `test` installs. .github/workflows/release.yml does this and
publishes; nobody has run that yet.
"""

import argparse
import sys
from pathlib import Path

from mlx_versions import NANOBIND, releases
from release import agreement, notes, trial, wheels

ROOT = Path(__file__).parents[2]
STAGES = {
    "check": lambda release: agreement.check(ROOT),
    "sdist": lambda release: print(release.sdist()),
    "linux": lambda release: print(release.linux()),
    "macos": lambda release: print(release.macos()),
    "try": lambda release: trial.run(release.outdir, release.mlx),
    "notes": lambda release: print(notes.write(ROOT, release.outdir)),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    parser.add_argument(
        "--mlx", nargs="+", default=releases(), metavar="RELEASE", help="default: all"
    )
    parser.add_argument("--outdir", type=Path, help="default: dist/VERSION")
    args = parser.parse_args()
    if unknown := set(args.stages) - STAGES.keys():
        parser.error(f"there is no stage {', '.join(sorted(unknown))}: {', '.join(STAGES)}")
    if unknown := set(args.mlx) - NANOBIND.keys():
        parser.error(f"--mlx, which ends the line, takes {', '.join(NANOBIND)}, not {unknown}")
    outdir = args.outdir or ROOT / "dist" / agreement.version(ROOT)
    outdir.mkdir(parents=True, exist_ok=True)
    release = wheels.Release(ROOT, outdir.resolve(), args.mlx)
    for name in args.stages or STAGES:
        print(f"== {name}", flush=True)
        try:
            STAGES[name](release)
        except agreement.Refused as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
