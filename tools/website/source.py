"""The site's source: the repository's pages, as they lie there, and a reference of all names.

The pages stay Markdown for GitHub. What is otherwise here is the front page, which is the README,
the two themes of its plot, and the tables of contents.
"""

import re
import shutil
from pathlib import Path

import mlx_norms

ROOT = Path(__file__).parents[2]
# What stands in the sidebar, in this order; a folder's pages under the page of its name.
CONTENTS = {
    "Use": [
        "docs/ops.md",
        "docs/gallery.md",
        "docs/patching.md",
        "docs/not_faster.md",
        "docs/norm_and_projection.md",
        "docs/command_line.md",
        "docs/compatibility.md",
    ],
    "Reference": [f"reference/{name}" for name in ("ops", "nn", "patching", "ladders", "errors")],
    "Measured": ["docs/performance.md", "docs/accuracy.md", "docs/mlx_layer_norm_gradient.md"],
    "Understand": ["docs/how_it_works.md", "docs/ladders.md", "kernels/README.md"],
    "Project": [
        "docs/stability.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "THIRD_PARTY.md",
        "CHANGELOG.md",
    ],
}
BESIDE = ["LICENSE", "docs/speed_dark.svg", "docs/speed_light.svg"]

OPS = mlx_norms.ops.__all__
PATCHING = ["patch", "patched", "unpatch", "is_patched", "fuse", "report", "Report"]
ERRORS = ["UnsupportedMLX"]

PICTURE = re.compile(r'<picture>.*?<img alt="([^"]*)".*?</picture>', re.S)
PLOT = "![{0}](docs/speed_light.svg){{.only-light}}\n![{0}](docs/speed_dark.svg){{.only-dark}}"


def pages() -> set[str]:
    """The repository's Markdown pages besides its README."""
    docs = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    return docs | {name for names in CONTENTS.values() for name in names if name.endswith(".md")}


def toctree(names: list[str], caption: str = "") -> str:
    options = [f":caption: {caption}"] * bool(caption) + [":hidden:"]
    return "\n".join(["", "```{toctree}", *options, "", *names, "```", ""])


def page(path: str) -> str:
    """The text of a page of the repository on the site."""
    text = (ROOT / path).read_text()
    text = re.sub(r"^```python \w+$", "```python", text, flags=re.M)  # what an example needs
    text = text.replace("<details>", "<details open>")  # a page for each topic is short enough
    text = re.sub(r"\]\(((?:\.\./)+)README\.md", r"](\1index.md", text)
    folder = Path(path).with_suffix("")
    if (ROOT / folder).is_dir():
        below = {f"{folder.name}/{each.stem}" for each in (ROOT / folder).glob("*.md")}
        text += toctree(sorted(below, key=lambda name: text.index(f"]({name}.md)")))
    return text


def front() -> str:
    text = PICTURE.sub(lambda found: PLOT.format(found[1]), page("README.md"))
    return text + "".join(toctree(names, caption) for caption, names in CONTENTS.items())


def titled(title: str, *lines: str) -> str:
    return "\n".join([title, "=" * len(title), "", *lines, ""])


def ops() -> str:
    def listed(directive: str, *options: str) -> list[str]:
        names = (f"   ~mlx_norms.{name}" if "auto" in directive else f"   {name}" for name in OPS)
        return ["", f".. {directive}::", *(f"   :{option}:" for option in options), "", *names]

    return titled("Ops", *listed("autosummary", "nosignatures"), *listed("toctree", "hidden"))


def op(name: str) -> str:
    return titled(name, f".. autofunction:: mlx_norms.{name}")


def named(title: str, names: list[str]) -> str:
    kinds = {
        name: "class" if isinstance(getattr(mlx_norms, name), type) else "function"
        for name in names
    }
    lines = [
        f".. auto{kind}:: mlx_norms.{name}" + MEMBERS * (kind == "class")
        for name, kind in kinds.items()
    ]
    return titled(title, *lines)


def nn() -> str:
    return titled("mlx_norms.nn", f".. automodule:: mlx_norms.nn{MEMBERS}")


def ladders() -> str:
    """Sphinx takes the two ops for no functions; each has a table of its rungs."""
    module = mlx_norms.ladders
    lines = [".. automodule:: mlx_norms.ladders", "", ".. autoclass:: mlx_norms.ladders.Rung", ""]
    for name in ("layer_norm", "sgemm"):
        lines += [f".. autofunction:: mlx_norms.ladders.{name}", ""]
        lines += [f".. py:data:: mlx_norms.ladders.{name.upper()}", "", "   .. list-table::", ""]
        for rung in getattr(module, name.upper()):
            lines += [f"      * - ``{rung.name}``", f"        - {rung.fixes}"]
        lines += [""]
    return titled("mlx_norms.ladders", *lines)


def errors() -> str:
    text = "Bad arguments are a ``ValueError`` or ``TypeError`` that names them: see each op."
    return titled("Errors", text, "", *(f".. autoexception:: mlx_norms.{name}" for name in ERRORS))


MEMBERS = "\n   :members:\n"
OTHERS = {
    "patching": lambda: named("Patching", PATCHING),
    "nn": nn,
    "ladders": ladders,
    "errors": errors,
}


def write(folder: Path) -> None:
    """Writes the site's source into a folder, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = {"index.md": front(), "reference/ops.rst": ops()}
    texts |= {path: page(path) for path in pages()}
    texts |= {f"reference/{name}.rst": op(name) for name in OPS}
    texts |= {f"reference/{name}.rst": made() for name, made in OTHERS.items()}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for path in BESIDE:
        if not (folder / path).exists():
            shutil.copy(ROOT / path, folder / path)
