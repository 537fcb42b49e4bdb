"""A release: what is refused, what is built once, what is said of it. Nothing is compiled here."""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import mlx_versions
from release import __main__ as tool
from release import agreement, notes, trial, wheels
from support.stub_wheel import wheel
from support.variant import ROOT

FILES = {
    "pyproject.toml": '[project]\nname = "mlx_norms"\nversion = "1.2.3"\n',
    "CHANGELOG.md": "# Changelog\n\n## [1.2.3] - 2030-01-02\n\n### Added\n\n- A line.\n\n"
    "## [1.2.2] - 2029-01-02\n\n- Older.\n",
    "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.3\ndate-released: 2030-01-02\n",
}


def git(root, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    """Commits these files, with a change, and tags them."""

    def make(tag="v1.2.3", file="CHANGELOG.md", old="", new=""):
        root = tmp_path / "checkout"
        root.mkdir()
        for name, text in FILES.items():
            (root / name).write_text(text.replace(old, new, 1) if name == file else text)
        git(root, "init", "-q")
        git(root, "add", ".")
        git(root, "commit", "-qm", "all")
        if tag:
            git(root, "tag", tag)
        return root

    return make


def test_what_agrees_is_released(checkout):
    assert agreement.check(checkout()) == "1.2.3"


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(tag=None), "This commit has no tag, but .* v1.2.3"),
        (dict(tag="v1.2.4"), "This commit has v1.2.4, but .* v1.2.3"),
        (dict(old="[1.2.3] - 2030-01-02", new="[1.2.4] - 2030-01-02"), "begins with 1.2.4"),
        (dict(old=" - 2030-01-02", new=""), "1.2.3 of None"),
        (
            dict(old="## [1.2.3]", new="## [Unreleased]\n\n- New.\n\n## [1.2.3]"),
            "unreleased changes",
        ),
        (dict(file="pyproject.toml", old="1.2.3", new="1.2.4"), "v1.2.3, but .* v1.2.4"),
        (
            dict(file="CITATION.cff", old="2030-01-02", new="2030-01-03"),
            "CITATION.cff does not say",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_disagrees_is_refused(change, message, checkout):
    with pytest.raises(agreement.Refused, match=message):
        agreement.check(checkout(**change))


def test_a_changed_checkout_is_refused(checkout):
    root = checkout()
    (root / "pyproject.toml").write_text(FILES["pyproject.toml"] + "# changed\n")
    with pytest.raises(agreement.Refused, match="not what the tag has:\nM? *pyproject.toml"):
        agreement.check(root)


def test_a_tag_that_disagrees_ends_the_tool(checkout, monkeypatch, capsys):
    """Before anything is built."""
    monkeypatch.setattr(tool, "ROOT", checkout(tag="v9.9.9"))
    monkeypatch.setattr(sys, "argv", ["release"])
    assert tool.main() == 1
    printed = capsys.readouterr().out
    assert "This commit has v9.9.9" in printed and "== sdist" not in printed


@pytest.mark.parametrize("given", [["--mlx", "0.32.4", "check"], ["chek"], ["--mlx", "0.1.0"]])
def test_unknown_words_are_refused(given, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["release", *given])
    with pytest.raises(SystemExit):
        tool.main()
    assert given[-1] in capsys.readouterr().err


def test_this_checkout_names_one_version(tmp_path):
    """Its own changelog, but for what is unreleased, and for the tag, which a release has."""
    version = agreement.version(ROOT)
    text = (ROOT / "CHANGELOG.md").read_text()
    released = re.sub(r"^## \[Unreleased\]\n.*?(?=^## )", "", text, flags=re.M | re.S)
    (tmp_path / "CHANGELOG.md").write_text(released)
    date, text = agreement.changes(tmp_path, version)
    assert f"version: {version}\ndate-released: {date}" in (ROOT / "CITATION.cff").read_text()
    assert text.startswith("### ")


def test_changelog_has_its_form():
    """What matters first, in five lines; then Keep a Changelog's headings, and an entry a line."""
    _, *body = (ROOT / "CHANGELOG.md").read_text().split("\n## ")
    for part in body:
        head, *lines = [line for line in part.splitlines() if line]
        kinds = [line.removeprefix("### ") for line in lines if not line.startswith("- ")]
        assert kinds.pop(0) == "Highlights", head
        if kinds[0] == "Breaking":
            kinds.pop(0)
        for first in re.findall(r"^### (?:Highlights|Breaking)\n\n((?:- .*\n)*)", part, re.M):
            assert 1 <= first.count("\n") <= 5, head
        assert {*kinds} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}, kinds
        assert all(len(line) <= 132 for line in lines)


def test_notes(checkout, tmp_path):
    (tmp_path / "mlx_norms-1.2.3.tar.gz").write_bytes(b"")
    text = notes.write(checkout(), tmp_path).read_text()
    assert text.startswith("# mlx_norms 1.2.3, 2030-01-02\n\n### Added\n\n- A line.\n")
    assert "Older" not in text
    assert "e3b0c44298fc1c14" in text and "mlx_norms-1.2.3.tar.gz" in text


def test_what_was_interrupted_is_built_again_and_nothing_twice(tmp_path):
    built = []

    def build(outdir):
        built.append(outdir)
        (outdir / "a.whl").touch()
        if len(built) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wheels.once(tmp_path, "*.whl", build)
    assert not [*tmp_path.glob("*.whl")]
    assert [wheels.once(tmp_path, "*.whl", build) for _ in range(2)] == [tmp_path / "a.whl"] * 2
    assert len(built) == 2


def test_a_wheel_is_merged_from_parts_that_are_built_once(tmp_path, monkeypatch):
    built = []
    tag = f"{wheels.TAG}-manylinux_2_35_{wheels.platform.machine()}"

    def build_wheel(self, source, mlx, folder, kernels, outdir):
        built.append(mlx)
        made = wheel(folder, mlx, tag)
        made.replace(outdir / made.name)

    def sdist(self, outdir):
        (outdir / "mlx_norms-0.1.0").mkdir()
        command = ["tar", "-czf", "mlx_norms-0.1.0.tar.gz", "--remove-files", "mlx_norms-0.1.0"]
        subprocess.run(command, cwd=outdir, check=True)

    monkeypatch.setattr(wheels.Release, "build_sdist", sdist)
    monkeypatch.setattr(wheels.Release, "build_wheel", build_wheel)
    monkeypatch.setattr(wheels, "repair", lambda made, outdir: shutil.move(made, outdir))
    release = wheels.Release(ROOT, tmp_path, ["0.32.3", "0.32.4"])
    made = release.linux()
    assert release.linux() == made and built == ["0.32.3", "0.32.4"]
    with zipfile.ZipFile(made) as archive:
        assert {"mlx_norms/_mlx_0_32_3/_ext.so", "mlx_norms/_mlx_0_32_4/_ext.so"} < {
            *archive.namelist()
        }
    made.unlink()
    shutil.rmtree(release.parts / f"linux-{wheels.TAG}" / "0.32.3")
    assert release.linux() == made and built == ["0.32.3", "0.32.4", "0.32.3"]


MACOS_TOOLS = """
import pathlib, sys
sys.path.insert(0, {tests!r})
from support.stub_wheel import wheel
name, *given = sys.argv[1:]
if name == "macos.wheel":
    mlx, outdir, stub = given[1::2]
    assert pathlib.Path(stub).read_text() == "stub"
    made = wheel(pathlib.Path({folder!r}), mlx, {tag!r})
    made.replace(pathlib.Path(outdir) / made.name)
print(name, *given)
"""


def test_a_macos_wheel_is_merged_and_checked(tmp_path, monkeypatch, capfd):
    """By tools that make wheels without code, with the stub file of a wheel for Linux."""
    tag = f"{wheels.TAG}-macosx_14_0_arm64"
    root, outdir = tmp_path / "root", tmp_path / "dist"
    (root / "tools").mkdir(parents=True)
    outdir.mkdir()
    text = MACOS_TOOLS.format(tests=str(ROOT / "tests"), folder=str(tmp_path / "made"), tag=tag)
    (root / "tools" / "__main__.py").write_text(text)
    with zipfile.ZipFile(outdir / "mlx_norms-0.1.0-cp39-cp39-linux_x86_64.whl", "w") as archive:
        archive.writestr("mlx_norms/_ext.pyi", "stub")
    monkeypatch.setattr(wheels, "environment", lambda *_: sys.executable)
    release = wheels.Release(root, outdir, ["0.32.3", "0.32.4"])
    made = release.macos()
    assert made.name == f"mlx_norms-0.1.0-{tag}.whl" and release.macos() == made
    printed = capfd.readouterr().out
    assert printed.count("macos.wheel --mlx") == 2
    assert printed.count("macos.check_wheel") == 1


def test_what_fits_no_machine_here_is_not_tried(tmp_path, monkeypatch, capsys):
    other = tmp_path / "mlx_norms-1.2.3-cp27-cp27-macosx_14_0_arm64.whl"
    fitting = tmp_path / "mlx_norms-1.2.3-py3-none-any.whl"
    for path in (other, fitting):
        path.touch()
    tries = []
    monkeypatch.setattr(trial, "tried", lambda *given: tries.append(given[1]) or "worked\n")
    for _ in range(2):
        trial.run(tmp_path, ["0.32.3", "0.32.4"])
    assert tries == ["0.32.3", "0.32.4"]
    printed = capsys.readouterr().out
    assert f"{other.name}: NOT TRIED" in printed and f"{fitting.name}: worked" in printed


@pytest.mark.parametrize("python, oldest", [("3.10", "0.31.2"), ("3.14t", "0.32.1")])
def test_the_releases_of_a_python(python, oldest):
    """Those of which MLX has a wheel."""
    found = mlx_versions.releases(python)
    assert found[0] == oldest and found[-1] == mlx_versions.NEWEST
    assert mlx_versions.releases("3.15") == [mlx_versions.NEWEST]
