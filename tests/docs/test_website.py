"""The site has all pages and all names; .ci/extra builds it, where a broken link is a warning."""

import re

import pytest

import mlx_norms
from support.variant import ROOT
from website import source


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("website") / "source"
    source.write(folder)
    return folder


def contents(folder, name="index"):
    """The pages that a page's tables of contents lead to, and it."""
    (file,) = (path for end in ("md", "rst") if (path := folder / f"{name}.{end}").exists())
    blocks = re.findall(r"```{toctree}\n(?::[^\n]*\n)*\n(.*?)```", file.read_text(), re.S)
    blocks += re.findall(r"toctree::\n.*\n\n((?: .*\n)+)", file.read_text())
    names = [line.strip().removesuffix(".md") for block in blocks for line in block.splitlines()]
    found = [
        each
        for line in names
        for each in contents(folder, str((file.parent / line).relative_to(folder)))
    ]
    return [name, *found]


def test_every_page_is_in_the_contents_once(staged):
    files = [path for path in staged.rglob("*") if path.suffix in (".md", ".rst")]
    names = [str(path.relative_to(staged).with_suffix("")) for path in files]
    assert sorted(contents(staged)) == sorted(names)
    for path in (ROOT / "docs").rglob("*.md"):
        assert (staged / path.relative_to(ROOT)).exists()


def test_every_public_name_is_in_the_reference(staged):
    text = "".join(path.read_text() for path in (staged / "reference").glob("*.rst"))
    shown = set(re.findall(r"^\.\. auto\w+:: mlx_norms\.(\w+)$", text, re.M))
    assert shown == set(mlx_norms.__all__)
    for name in mlx_norms.ladders.__all__:
        assert f":: mlx_norms.ladders.{name}\n" in text
    # Of nn Sphinx finds the classes and functions by itself.
    assert ".. automodule:: mlx_norms.nn\n   :members:" in text


def test_the_front_is_a_page_of_its_own(staged):
    text = (staged / "index.md").read_text()
    assert "(docs/start.md)" in text and "(docs/gallery.md)" in text
    assert "Get started" in text
    readme = (staged / "README.md").read_text()
    assert text not in readme and "| you run |" in readme


def test_pictures_are_of_the_theme(staged):
    for path in staged.rglob("*.md"):
        text = path.read_text()
        assert "<picture>" not in text
        for name in re.findall(r"\]\(([^)]*\.svg)\)", text):
            assert (path.parent / name).exists(), f"{path} shows {name}"
    assert "{.only-dark}" in (staged / "docs" / "start.md").read_text()


def test_ops_are_by_family(staged):
    text = (staged / "reference" / "ops.rst").read_text()
    assert [*source.FAMILIES] == re.findall(r"^(\w.*)\n-+$", text, re.M)
    assert sorted(source.OPS) == sorted(
        name for names in source.FAMILIES.values() for name in names
    )
