"""What macos.compile_metal says of each library, with a stand-in for Xcode's Metal compiler."""

import os
import re
import subprocess
import sys

import pytest

from support.variant import ROOT

COMMAND = [sys.executable, ROOT / "tools", "macos.compile_metal"]

# Refuses what has a given word in it, and the language versions of newer Xcodes.
XCRUN = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
for argument do
  case $argument in
    --version) echo "Apple metal version 0"; exit ;;
    -std=metal4.*) echo "error: invalid value in '$argument'"; exit 1 ;;
    */texts/*.metal) source=$argument ;;
  esac
done
[ -z "$source" ] || ! grep -q "{refused}" "$source" || {{ echo "$source:1: error: no"; exit 1; }}
"""
LINE = re.compile(r"^metal(\S+)  (\w+) +(compiles|FAILED)$", re.M)


@pytest.fixture
def compile_metal(tmp_path):
    """Runs the script with a compiler that refuses each text with a word in it."""

    def run(*versions, refused="nothing has this word"):
        xcrun = tmp_path / "xcrun"
        xcrun.write_text(XCRUN.format(refused=refused))
        xcrun.chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(
            [*COMMAND, *versions],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert not done.stderr, done.stderr
        return done

    return run


def texts(folder):
    subprocess.run([sys.executable, ROOT / "tools", "join", "metal", folder], check=True)
    return {path.stem: path.read_text() for path in folder.iterdir()}


def test_every_library_in_every_version(compile_metal, tmp_path):
    done = compile_metal("3.1", "3.2")
    assert done.returncode == 0, done.stdout
    folder = tmp_path / "texts"
    folder.mkdir()
    names = sorted(texts(folder))
    assert LINE.findall(done.stdout) == [
        (version, name, "compiles") for version in ("3.1", "3.2") for name in names
    ]
    calls = (tmp_path / "calls").read_text()
    assert calls.count("-std=metal3.1 -mmacosx-version-min=14.0") == len(names) + 1
    assert calls.count("-std=metal3.2 -mmacosx-version-min=15.0") == len(names) + 1
    assert calls.count(" -Wmetal-addr-spaces ") == 2 * (len(names) + 1)


def test_one_refused_library_is_named_and_the_rest_compiled(compile_metal, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    word = "gemv"
    refused = {name for name, text in texts(folder).items() if word in text}
    done = compile_metal("3.1", refused=word)
    assert done.returncode == 1
    verdicts = {name: verdict for _, name, verdict in LINE.findall(done.stdout)}
    assert refused == {name for name, verdict in verdicts.items() if verdict == "FAILED"}
    assert 0 < len(refused) < len(verdicts)
    for name in refused:
        assert f"{name}.metal:1: error: no" in done.stdout.splitlines()


def test_versions_that_the_compiler_does_not_know_are_not_run(compile_metal, tmp_path):
    done = compile_metal()
    assert done.returncode == 0
    for version, macos in ("4.0", "26.0"), ("4.1", "27.0"):
        line = f"metal{version}  NOT RUN: this compiler does not know it: error: invalid value"
        assert line in done.stdout
        tried = f"-std=metal{version} -mmacosx-version-min={macos}"
        assert (tmp_path / "calls").read_text().count(tried) == 1
    assert {version for version, _, _ in LINE.findall(done.stdout)} == {"3.1", "3.2"}


def test_a_version_that_was_asked_for_and_is_not_known_is_red(compile_metal):
    assert compile_metal("3.2", "4.0").returncode == 1


def test_a_version_that_no_macos_has_is_refused():
    done = subprocess.run(
        [*COMMAND, "2.0"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "'2.0' is none of 3.1, 3.2, 4.0, 4.1" in done.stderr


@pytest.mark.applies(sys.platform != "darwin")
def test_without_a_compiler_it_says_so():
    done = subprocess.run(COMMAND, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == "There is no Metal compiler: No such file or directory: xcrun\n"
