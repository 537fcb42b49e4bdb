"""Reuses object files of the checkout's builds for a copy of the checkout.

An object is reused if the copy's compile command is the same except for the folders, and every file
that it was compiled from is the same in the copy. Files in site-packages are skipped: their
versions are pinned, and they may have been in another environment.

    python known_objects.py OBJECTS COMPILER ...     as CMake's compiler launcher
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INSTALLED = re.compile(r"\S*/site-packages/")


def environment(checkout: Path, copy: Path, objects: Path) -> dict[str, str]:
    """The variables that make CMake reuse known objects in the copy.

    Args:
        checkout: The checkout, whose folder `build` has its builds.
        copy: The copy that will be built.
        objects: The file to write the known objects to.
    """
    roots = [str(copy), str(checkout)]
    known = {}
    for build in {file.parent for file in checkout.glob("build/**/.ninja_deps")}:
        if (build / "build.ninja").exists():
            known |= _of_build(build, checkout, copy, roots)
    objects.write_text(json.dumps({"roots": roots, "objects": known}))
    launcher = [sys.executable, "-S", __file__, str(objects)]
    return {"CMAKE_CXX_COMPILER_LAUNCHER": ";".join(launcher)}


def _of_build(build: Path, checkout: Path, copy: Path, roots: list[str]) -> dict[str, str]:
    """The objects of one build, by command."""
    deps, commands = _ask_ninja(build, "deps", "compdb")
    usable = set()
    for record in filter(None, deps.strip().split("\n\n")):
        head, *files = record.splitlines()
        name = head.partition(":")[0]
        if _is_same(build, name, [build / file.strip() for file in files], checkout, copy):
            usable.add(name)
    return {
        _key(shlex.split(entry["command"]), build, roots): str(build / entry["output"])
        for entry in json.loads(commands)
        if entry["output"] in usable
    }


def _ask_ninja(build: Path, *tools: str) -> list[str]:
    """The output of ninja's tools, run on copies of its logs, which another process may write."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("build.ninja", "CMakeFiles/rules.ninja", ".ninja_deps"):
            file = Path(directory, name)
            file.parent.mkdir(exist_ok=True)
            shutil.copyfile(build / name, file)
        commands = (["ninja", "-C", directory, "--quiet", "-t", tool] for tool in tools)
        options = dict(capture_output=True, text=True, check=True)
        return [subprocess.run(command, **options).stdout for command in commands]


def _is_same(build, name, files, checkout, copy) -> bool:
    """Whether an object exists and is up to date, and the copy has the same files."""
    if not (build / name).exists():
        return False
    compiled = (build / name).stat().st_mtime
    for file in files:
        if file.is_relative_to(build):
            if file.name.startswith("cmake_pch."):
                continue  # headers in site-packages
            return False  # generated, from files that the copy may have changed
        if "/site-packages/" in str(file) or not file.is_relative_to(checkout):
            continue
        twin = copy / file.relative_to(checkout)
        if not (file.exists() and twin.exists() and file.stat().st_mtime <= compiled):
            return False
        if file.read_bytes() != twin.read_bytes():
            return False
    return True


def _key(command: list[str], build, roots: list[str]) -> str:
    """A command without the folders that differ in a copy."""
    compiler = os.path.realpath(shutil.which(command[0]) or command[0])
    text = " ".join([compiler, *command[1:]]).replace(str(build), "BUILD")
    for root in roots:
        text = text.replace(root, "ROOT")
    return INSTALLED.sub("site-packages/", text)


def main(objects: str, *command: str) -> None:
    known = json.loads(Path(objects).read_text())
    found = known["objects"].get(_key(list(command), os.getcwd(), known["roots"]))
    if found:
        shutil.copyfile(found, command[command.index("-o") + 1])
    else:
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
