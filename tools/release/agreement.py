"""Whether tag, version, changelog and citation say the same of a checkout."""

import re
import subprocess
from pathlib import Path


class Refused(Exception):
    """Why a checkout is not released."""


def version(root: Path) -> str:
    return re.search(r'^version = "(.*)"$', (root / "pyproject.toml").read_text(), re.M)[1]


def changes(root: Path, release: str) -> tuple[str, str]:
    """The date of a version in the changelog, and what it says of it.

    Raises:
        Refused: If it is not the newest there, or has no date.
    """
    text = (root / "CHANGELOG.md").read_text()
    parts = re.split(r"^## \[(.*?)\](?: - (.*))?\n", text, flags=re.M)
    found = [*zip(parts[1::3], parts[2::3], parts[3::3])]
    unreleased = [body for name, _, body in found if name == "Unreleased" and body.strip()]
    if unreleased:
        raise Refused("CHANGELOG.md has unreleased changes: give them this version's heading.")
    name, date, body = next(part for part in found if part[0] != "Unreleased")
    if name != release or not re.fullmatch(r"\d{4}-\d\d-\d\d", date or ""):
        raise Refused(f"CHANGELOG.md begins with {name} of {date}, not {release} of a date.")
    return date, body.strip()


def check(root: Path) -> str:
    """The version, if this checkout may be released as that.

    Raises:
        Refused: If not.
    """
    release = version(root)
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    if f"v{release}" not in tags:
        have = ", ".join(tags) or "no tag"
        raise Refused(f"This commit has {have}, but pyproject.toml's version asks for v{release}.")
    if changed := _git(root, "status", "--porcelain"):
        raise Refused(f"This is not what the tag has:\n{changed}")
    date, _ = changes(root, release)
    cited = (root / "CITATION.cff").read_text()
    if f"\nversion: {release}\ndate-released: {date}\n" not in cited:
        raise Refused(f"CITATION.cff does not say {release} of {date}.")
    print(f"v{release} of {date}: tag, version, changelog and citation agree.")
    return release


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", root, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"git says: {done.stderr.strip()}")
    return done.stdout.strip()
