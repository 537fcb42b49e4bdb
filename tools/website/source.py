"""The site's source: the repository's pages, as they lie there, and a reference of all names.

The pages stay Markdown for GitHub. What is otherwise here is the front page, landing.md, the two
themes of each picture, and the tables of contents.
"""

import re
import shutil
from pathlib import Path

import mlx_norms

ROOT = Path(__file__).parents[2]
FRONT = Path(__file__).with_name("landing.md")
# What is in the sidebar, in this order; a folder's pages under the page of its name.
CONTENTS = {
    "Get started": [
        "docs/start.md",
        "docs/gallery.md",
        "docs/patching.md",
        "docs/troubleshooting.md",
        "docs/mac.md",
    ],
    "Reference": [
        *(
            f"reference/{name}"
            for name in ("ops", "nn", "patching", "warm_up", "ladders", "errors")
        ),
        "docs/ops.md",
        "docs/command_line.md",
        "docs/compatibility.md",
        "docs/stability.md",
    ],
    "Internals": [
        "docs/how_it_works.md",
        "docs/performance.md",
        "docs/accuracy.md",
        "docs/norm_and_projection.md",
        "docs/ladders.md",
        "docs/mlx_layer_norm_gradient.md",
        "kernels/README.md",
        "kernels/bounds.md",
        "kernels/counts.md",
    ],
    "Project": ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "THIRD_PARTY.md"],
}
BESIDE = ["LICENSE", *(f"docs/pictures/{each.name}" for each in (ROOT / "docs/pictures").iterdir())]

OPS = mlx_norms.ops.__all__
FAMILIES = {
    "Norms": ["rms_norm", "layer_norm", "l2_norm"],
    "A residual and a norm": ["add_rms_norm", "add_layer_norm", "norm_add_norm"],
    "Norms of several arrays": ["rms_norms", "l2_norms"],
    "A norm and a rotation": ["norm_rope", "qk_norm_rope"],
    "Norms of images": ["group_norm", "instance_norm", "batch_norm"],
    "Norms and products": ["rms_norm_linear", "layer_norm_linear", "quantized_matmul", "matmul"],
}
PATCHING = ["patch", "patched", "unpatch", "is_patched", "fuse", "report", "Report"]
WARM_UP = ["warm_up", "WarmUp"]
ERRORS = ["UnsupportedMLX"]

PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]*)">\s*<img alt="([^"]*)" src="([^"]*)">\s*</picture>'
)
BOTH = r"![\2](\3){.only-light}\n![\2](\1){.only-dark}"


def pages() -> set[str]:
    """The repository's Markdown pages."""
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
    text = PICTURE.sub(BOTH, text)
    folder = Path(path).with_suffix("")
    if (ROOT / folder).is_dir():
        below = {f"{folder.name}/{each.stem}" for each in (ROOT / folder).glob("*.md")}
        text += toctree(sorted(below, key=lambda name: text.index(f"]({name}.md)")))
    return text


def front() -> str:
    return FRONT.read_text() + "".join(toctree(names, of) for of, names in CONTENTS.items())


def titled(title: str, *lines: str) -> str:
    return "\n".join([title, "=" * len(title), "", *lines, ""])


def ops() -> str:
    lines = []
    for family, names in FAMILIES.items():
        lines += [family, "-" * len(family), "", ".. autosummary::", "   :nosignatures:", ""]
        lines += [*(f"   ~mlx_norms.{name}" for name in names), ""]
    in_order = [name for names in FAMILIES.values() for name in names]
    lines += [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in in_order)]
    return titled("Ops by family", *lines)


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
    "warm_up": lambda: named("Warming up", WARM_UP),
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
    (folder / "docs" / "pictures").mkdir(parents=True, exist_ok=True)
    for path in BESIDE:
        if not (folder / path).exists():
            shutil.copy(ROOT / path, folder / path)
