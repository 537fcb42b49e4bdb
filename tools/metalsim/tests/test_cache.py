"""The folder of compiled libraries: what is removed from it, and when."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metalsim import cache

DAY = cache.DAY


def name(number, suffix="so"):
    return f"library-{number:024x}.{suffix}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("METALSIM_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "directory", cache.directory.__wrapped__)
    return tmp_path


def put(path, days, nbytes=1):
    """An entry that was used so many days ago."""
    if path.name.startswith("building-"):
        path.mkdir()
        (path / "library.cpp").touch()
    else:
        path.write_bytes(bytes(nbytes))
    used = time.time() - days * DAY
    os.utime(path, (used, used))
    return path


def build(path):
    path.write_text("built")


def test_long_unused_entries_are_removed(folder):
    names = [name(1), name(2, "lock"), name(3, "7-8.partial"), f"checks-{0:024x}.o"]
    names += [f"runtime-{0:024x}.so", "building-abc"]
    old = [put(folder / n, 31) for n in names]
    kept = [put(folder / name(9), 29), put(folder / "building-def", 29)]
    new = cache.cached(name(10), build)
    assert [path for path in old if path.exists()] == []
    assert all(path.exists() for path in (*kept, new))


def test_what_the_cache_did_not_write_stays(folder):
    others = [put(folder / n, 400) for n in ("notes.txt", "library-of-mine.so", "library-1.so")]
    (folder / "include").mkdir()
    os.utime(folder / "include", (0, 0))
    cache.cached(name(1), build)
    assert all(path.exists() for path in (*others, folder / "include"))


def test_use_counts_as_new(folder):
    path = put(folder / name(1), 31)
    assert cache.cached(name(1), pytest.fail) == path
    cache.cached(name(2), build)
    assert path.exists()


def test_nothing_is_removed_where_nothing_is_built(folder):
    put(folder / name(1), 0)
    old = put(folder / name(2), 31)
    cache.cached(name(1), pytest.fail)
    assert old.exists()


def test_least_recently_used_go_first_over_the_limit(folder, monkeypatch):
    monkeypatch.setattr(cache, "KEPT_BYTES", 250)
    entries = {days: put(folder / name(days), days, 100) for days in (4, 2, 5, 3)}
    cache.cached(name(100), build)
    assert {days for days, path in entries.items() if path.exists()} == {2, 3}


def test_what_may_be_loaded_stays_over_the_limit(folder, monkeypatch):
    monkeypatch.setattr(cache, "KEPT_BYTES", 0)
    recent, old = put(folder / name(1), 0.5), put(folder / name(2), 1.5)
    new = cache.cached(name(3), build)
    assert recent.exists() and new.exists() and not old.exists()


def test_entry_that_another_process_removes(folder, monkeypatch):
    entries = [put(folder / name(n), 31) for n in range(3)]
    found = list(cache._entries(folder))
    entries[1].unlink()
    monkeypatch.setattr(cache, "_entries", lambda _: found)
    cache.prune(folder)
    assert list(folder.iterdir()) == []


def test_failed_build_leaves_nothing(folder):
    def fail(path):
        build(path)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cache.cached(name(1), fail)
    assert not list(folder.glob("*.so")) and not list(folder.glob("*.partial"))


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, ".cache/metalsim"),
        ({"XDG_CACHE_HOME": "{home}/xdg"}, "xdg/metalsim"),
        ({"XDG_CACHE_HOME": ""}, ".cache/metalsim"),
        ({"XDG_CACHE_HOME": "{home}/xdg", "METALSIM_CACHE": "{home}/mine"}, "mine"),
    ],
)
def test_place(tmp_path, monkeypatch, environment, expected):
    monkeypatch.setenv("HOME", str(tmp_path))
    for key in ("XDG_CACHE_HOME", "METALSIM_CACHE"):
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value.format(home=tmp_path))
    assert cache.directory.__wrapped__() == tmp_path / expected


def test_processes_that_build_and_prune_at_once(tmp_path):
    """Each finds its files whole, while all of them prune more than there is to keep."""
    program = (
        "import sys; from metalsim import cache;"
        "cache.KEPT_BYTES = 0; cache.KEPT_SECONDS = cache.IN_USE_SECONDS = 10;"
        "build = lambda path: path.write_text('built');"
        "names = [f'library-{n % 40:024x}.so' for n in range(400)];"
        "print(all(cache.cached(n, build).read_text() == 'built' for n in names))"
    )
    for number in range(20):
        (tmp_path / name(number)).write_text("built")
        os.utime(tmp_path / name(number), (0, 0))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[1],
            env=os.environ | {"METALSIM_CACHE": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    assert [p.communicate()[0].strip() for p in processes] == ["True"] * 4
    assert sorted(p.name for p in tmp_path.iterdir()) == [name(n) for n in range(40)]
