"""For readers of stored figures: their commits; finds those that are older than what they measure.

    python tools results                  lists them
    python tools results --check          names those whose sources have changed since
    python tools results --page README.md names what that page shows of an older minor version: 1
    python tools results --stored FILE    notes that a file was measured with this commit

bench/results/stored.csv has a line for each file: its digest, the commit, the version and the
sources that it measures. Lines of before this list have the commit that stored the file. An old
figure is no error, for a speed is not measured for every commit; a file that changed without its
line is. Without git's history nothing can be told: NOT RUN, status 75.
"""

import argparse
import csv
import hashlib
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = "bench/results/stored.csv"
KINDS = ("bench/results/*.csv", "tools/agx/stored/*")
CARD = re.compile(r"(h\d+)_")  # in a file's name
NOT_RUN = 75


@dataclass(frozen=True)
class Stored:
    file: str
    digest: str
    commit: str
    version: str
    sources: str  # paths, separated by spaces


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def read(root: Path) -> list[Stored]:
    with (root / LIST).open(newline="") as file:
        return [Stored(**row) for row in csv.DictReader(file)]


def write(root: Path, lines: list[Stored]) -> None:
    with (root / LIST).open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Stored)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, sorted(lines, key=lambda line: line.file)))


def devices_of(path: Path) -> set[str]:
    """The devices that a file's lines name."""
    if path.suffix != ".csv":
        return set()
    with path.open(newline="") as file:
        return {row["device"] for row in csv.DictReader(file) if row.get("device")}


def wrong(root: Path, lines: list[Stored]) -> list[str]:
    """What the list itself lacks."""
    files = {str(path.relative_to(root)) for kind in KINDS for path in root.glob(kind)} - {LIST}
    listed = {line.file: line for line in lines}
    found = [f"{name} is not listed in {LIST}" for name in sorted(files - listed.keys())]
    found += [f"{name} is listed and not there" for name in sorted(listed.keys() - files)]
    for name in sorted(files & listed.keys()):
        if digest(root / name) != listed[name].digest:
            found.append(f"{name} has changed: python tools results --stored {name}")
        card, devices = CARD.match(Path(name).name), devices_of(root / name)
        if card and devices and not all(card[1] in each.lower() for each in devices):
            found.append(f"{name} is of {' and of '.join(sorted(devices))}")
        gone = [path for path in listed[name].sources.split() if not (root / path).exists()]
        found += [f"{name} measures {path}, which is not there" for path in gone]
    return found


def git(root: Path, *arguments: str) -> str | None:
    """What git prints, or None if it cannot."""
    try:
        command = ["git", "-C", root, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def older(root: Path, line: Stored) -> list[str] | None:
    """The commits since that changed what it measures, newest first; None if git has not both."""
    log = ["log", "--no-merges", "--format=%h %s", f"{line.commit}..HEAD", "--"]
    found = git(root, *log, *line.sources.split())
    return None if found is None else found.splitlines()


def check(root: Path) -> int:
    lines = read(root)
    errors = wrong(root, lines)
    print(*errors, sep="\n", end="\n" if errors else "")
    unknown = 0
    for line in lines:
        since = older(root, line)
        if since is None:
            unknown += 1
        elif since:
            print(
                f"{line.file} is of {line.commit}, {line.version}: its sources have changed in "
                f"{len(since)} commits since, last in {since[0]}"
            )
    if unknown:
        print(f"NOT RUN for {unknown} of {len(lines)}: git has not their commits here.")
    return 1 if errors else NOT_RUN if unknown else 0


def minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def current(root: Path) -> str:
    return re.search(r'^version = "(.*)"$', (root / "pyproject.toml").read_text(), re.M)[1]


def stale(root: Path, files: set[str]) -> list[str]:
    """Those of the files that were measured with an older minor version than the checkout's."""
    version = current(root)
    return [
        f"{line.file} is of {line.version}, and this is {version}: measure it again"
        for line in read(root)
        if line.file in files and minor(line.version) < minor(version)
    ]


def shown(page: str) -> set[str]:
    """The files whose figures a page shows."""
    import pages

    parts = [part for of in pages.parts().values() for part in of if part.page == page]
    return {f"bench/results/{name}.csv" for part in parts for name in part.results}


def store(root: Path, name: str) -> int:
    """Notes a file's commit; a new one's sources are to be filled in."""
    lines = {line.file: line for line in read(root)}
    line = lines.get(name) or Stored(name, "", "", "", "")
    commit = git(root, "rev-parse", "--short=10", "HEAD")
    if commit is None:
        print("NOT RUN: there is no git, or no commit.")
        return NOT_RUN
    changed = git(root, "status", "--porcelain", "--", *line.sources.split())
    if line.sources and changed:
        print(f"What {name} measures is of no commit:\n{changed}")
        return 1
    version = current(root)
    lines[name] = replace(line, digest=digest(root / name), commit=commit, version=version)
    write(root, [*lines.values()])
    if not line.sources:
        print(f"Name the sources that {name} measures in {LIST}.")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--check", action="store_true")
    ways.add_argument("--page", metavar="PAGE", help="such as README.md")
    ways.add_argument("--stored", metavar="FILE", help="relative to the checkout")
    args = parser.parse_args()
    if args.check:
        return check(ROOT)
    if args.page:
        found = stale(ROOT, shown(args.page))
        print(*found, sep="\n", end="\n" if found else "")
        return 1 if found else 0
    if args.stored:
        return store(ROOT, args.stored)
    for line in read(ROOT):
        print(f"{line.file:44} {line.version:8} {line.commit:12} {line.sources}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
