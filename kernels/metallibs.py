"""Compiles the libraries of kernels for Metal with Xcode's compiler.

python kernels/metallibs.py FOLDER MACOS

FOLDER gets a metallib for each library that compiles, for MACOS or later, and a file `done`. A
library that does not compile is reported in one line, with the whole log in FOLDER/NAME.log; the
extension compiles its text at first use. With MLX_NORMS_REQUIRE_METALLIB=1 in the environment it
is an error.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import join

# As MLX compiles its own.
OPTIONS = ["-Wall", "-Wextra", "-fno-fast-math", "-Wno-c++17-extensions", "-Wno-c++20-extensions"]
REQUIRED = "MLX_NORMS_REQUIRE_METALLIB"


def build(name: str, text: str, folder: Path, macos: str) -> str | None:
    """Compiles a library; returns the first error, or None if it compiles."""
    source, air = folder / f"{name}.metal", folder / f"{name}.air"
    metallib = folder / f"{join.file_name(name, text)}.metallib"
    source.write_text(text)
    metal = ["xcrun", "-sdk", "macosx", "metal", f"-mmacosx-version-min={macos}"]
    log = ""
    for command in ([*metal, *OPTIONS, "-c", source, "-o", air], [*metal, air, "-o", metallib]):
        done = subprocess.run(command, capture_output=True, text=True)
        log += done.stdout + done.stderr
        if done.returncode != 0:
            metallib.unlink(missing_ok=True)
            (folder / f"{name}.log").write_text(log)
            wrong = [line for line in log.splitlines() if "error" in line] or log.splitlines()
            return wrong[0].strip() if wrong else f"exit status {done.returncode}"
    return None


def main(folder: Path, macos: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    texts = join.texts()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = list(pool.map(lambda name: build(name, texts[name], folder, macos), texts))
    for name, problem in zip(texts, wrong, strict=True):
        if problem:
            print(
                f"mlx_norms: the Metal compiler refuses library {name}, which is compiled from its "
                f"text at first use instead: {problem} (see {folder / name}.log)",
                file=sys.stderr,
            )
    if any(wrong) and os.environ.get(REQUIRED) == "1":
        print(f"mlx_norms: {REQUIRED} is 1, so this is an error", file=sys.stderr)
        return 1
    (folder / "done").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
