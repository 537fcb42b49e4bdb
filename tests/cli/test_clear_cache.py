"""``clear-cache``, and what ``info`` says of the cache of compiled CUDA kernels."""

import json
import os
from pathlib import Path

import pytest

from mlx_norms.__main__ import main
from mlx_norms.commands import _kernel_cache

DIGEST = "0123456789abcdef"
OURS = (f"norm_4_1_1024_{DIGEST}", f"linear_{DIGEST}", f"norm_4_1_1024_{DIGEST}.4711.0")
OTHERS = (DIGEST, "norm_4_1_1024_0123", f"norm_{DIGEST}.txt", f"norm_{DIGEST}.1", "README")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with three files of ours, of 1, 2 and 3 KiB, beside others."""
    found = tmp_path / "cache"
    found.mkdir()
    for i, name in enumerate(OURS, start=1):
        (found / name).write_bytes(b"x" * 1024 * i)
    for name in OTHERS:
        (found / name).write_text("not ours")
    monkeypatch.setenv("MLX_NORMS_CACHE", str(found))
    return found


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_what_is_ours_is_removed_and_said(folder, capsys):
    assert main(["clear-cache"]) == 0
    assert capsys.readouterr() == (
        f"Removed 3 compiled CUDA kernels, 6.0 KiB, from {folder}.\n",
        "",
    )
    assert names(folder) == set(OTHERS)


def test_nothing_is_there(folder, capsys):
    assert main(["clear-cache"]) == 0
    capsys.readouterr()
    assert main(["clear-cache"]) == 0
    nothing = f"Nothing to remove: {folder} (no compiled CUDA kernels).\n"
    assert capsys.readouterr() == (nothing, "")


@pytest.mark.parametrize("missing", ["none", "file/none", "file"])
def test_no_such_folder(missing, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MLX_NORMS_CACHE", str(tmp_path / missing))
    assert main(["clear-cache"]) == 0
    assert f"Nothing to remove: {tmp_path / missing} (" in capsys.readouterr().out


def test_links_are_not_followed(folder, tmp_path, capsys):
    """A link of such a name goes, what it leads to stays, and so does what a folder has."""
    outside = tmp_path / f"norm_{DIGEST}"
    outside.write_text("a large file" * 1000)
    away = tmp_path / "away"
    away.mkdir()
    (away / f"norm_{DIGEST}").touch()
    (folder / f"link_{DIGEST}").symlink_to(outside)
    (folder / f"dangling_{DIGEST}").symlink_to(tmp_path / "none")
    (folder / f"tolink_{DIGEST}").symlink_to(away)
    (folder / "away").symlink_to(away)
    inner = folder / f"folder_{DIGEST}"
    inner.mkdir()
    (inner / f"norm_{DIGEST}").touch()
    assert main(["clear-cache"]) == 0
    assert "Removed 6 compiled CUDA kernels, 6." in capsys.readouterr().out
    assert names(folder) == {*OTHERS, "away", inner.name}
    assert outside.exists() and names(away) == names(inner) == {f"norm_{DIGEST}"}


def test_a_folder_that_is_a_link(folder, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(folder)
    monkeypatch.setenv("MLX_NORMS_CACHE", str(link))
    assert main(["clear-cache"]) == 0
    assert names(folder) == set(OTHERS)


@pytest.mark.parametrize(
    "cache, home, expected",
    [
        ("/a/b", "/h", Path("/a/b")),
        (None, "/h", Path("/h/.cache/mlx_norms")),
        ("", "/h", None),
        (None, None, None),
    ],
)
def test_where_it_is(cache, home, expected, monkeypatch):
    """As cubin.cpp has it, by which an empty name is none."""
    for name, value in (("MLX_NORMS_CACHE", cache), ("HOME", home)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert _kernel_cache.find().folder == expected


def test_none_at_all(monkeypatch, capsys):
    monkeypatch.setenv("MLX_NORMS_CACHE", "")
    assert main(["clear-cache"]) == 0
    assert "Nothing to remove: none (MLX_NORMS_CACHE" in capsys.readouterr().out


def test_what_cannot_be_removed_is_an_error(folder, monkeypatch, capsys):
    def refuse(self, missing_ok):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert main(["clear-cache"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert "cannot be cleared: PermissionError" in output.err and str(folder) in output.err


def test_another_process_was_faster(folder, monkeypatch):
    found = _kernel_cache.find()
    os.remove(found.files[0])
    monkeypatch.setattr(_kernel_cache, "find", lambda: found)
    assert main(["clear-cache"]) == 0


def test_json(folder, capsys):
    figures = {"folder": str(folder), "files": 3, "bytes": 6144}
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["kernel_cache"] == figures
    assert main(["clear-cache", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"command": "clear-cache", "removed": figures}


def test_info_says_where_it_lies(folder, capsys):
    assert main(["info"]) == 0
    said = f"kernel cache      {folder} (3 compiled CUDA kernels, 6.0 KiB)"
    assert said in capsys.readouterr().out.splitlines()
