"""The notes of a release: the changelog's part, and the packages with their digests."""

import hashlib
from pathlib import Path

from release import agreement


def text(root: Path, outdir: Path) -> str:
    release = agreement.version(root)
    date, body = agreement.changes(root, release)
    packages = sorted([*outdir.glob("*.tar.gz"), *outdir.glob("*.whl")])
    digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in packages]
    parts = [f"# mlx_norms {release}, {date}", body]
    if digests:
        parts += ["### Packages", "```\n" + "\n".join(digests) + "\n```"]
    return "\n\n".join(parts) + "\n"


def write(root: Path, outdir: Path) -> Path:
    """Writes them beside the packages; returns the path."""
    path = outdir / "notes.md"
    path.write_text(text(root, outdir))
    return path
