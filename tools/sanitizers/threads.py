"""For who changes the CPU's kernels: their threads under ThreadSanitizer; holds them free of races.

    python tools sanitizers.threads [LEVEL]

Of an instruction set, by default the newest, or of the baseline where the machine cannot run it.
It must report nothing but the race that the program has on request.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import hangs

ROOT = Path(__file__).parents[2]
# Of MLX the program has inline functions alone.
MLX = Path(importlib.util.find_spec("mlx").submodule_search_locations[0], "include")
SOURCES = (
    "tools/sanitizers/norms_on_threads.cpp",
    "csrc/cpu/threads.cpp",
    "csrc/cpu/isa.cpp",
    "csrc/norm/groups/cpu_statistics.cpp",
)
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
LEVELS = {
    "baseline": [],
    "avx2": ["-mavx2", "-mf16c", "-mfma"],
    "avx512": AVX512,
    "avx512bf16": [*AVX512, "-mavx512bf16"],
}
# Those that are compiled once per level.
KERNELS = re.search(
    r"set\(MLX_NORMS_CPU_KERNELS\s([^)]*)\)", (ROOT / "csrc/sources.cmake").read_text()
)[1].split()
THREADS = ("2", "3", "16")


def object_of(source: str, level: str = "") -> str:
    return source.replace("/", "_") + f"{level}.o"


def build(directory: Path, level: str) -> Path:
    common = ["c++", "-std=c++20", "-O1", "-g", "-w", "-fsanitize=thread"]
    common += [f"-I{ROOT}", f"-isystem{MLX}"]
    levels = {name: LEVELS[name] for name in ("baseline", level)}
    common += [f"-DMLX_NORMS_{name.upper()}" for name in levels]  # of what is built
    steps = {object_of(source): (source, []) for source in SOURCES}
    for name, options in levels.items():
        options = [*options, "-ffp-contract=off"]
        options += [f"-DMLX_NORMS_KERNELS=kernels_{name}", f"-DMLX_NORMS_LEVEL={name}"]
        steps |= {object_of(source, name): (source, options) for source in KERNELS}
    objects = [directory / name for name in steps]

    def compile(step: tuple[str, list[str]], output: Path) -> None:
        source, options = step
        subprocess.run([*common, *options, "-c", ROOT / source, "-o", output], check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile, steps.values(), objects))
    program = directory / "norms_on_threads"
    subprocess.run([*common, *objects, "-pthread", "-o", program], check=True)
    return program


def run(program: Path, threads: str, *arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"MLX_NORMS_CPU_THREADS": threads}
    return subprocess.run(
        [program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=hangs.SECONDS,
    )


def main() -> int:
    known = list(LEVELS) if os.uname().machine == "x86_64" else ["baseline"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("level", nargs="?", choices=known, default=known[-1], metavar="LEVEL")
    level = parser.parse_args().level
    with tempfile.TemporaryDirectory() as directory:
        program = build(Path(directory), level)
        wrong = 0
        for threads in THREADS:
            done = run(program, threads)
            print(done.stdout.strip(), flush=True)
            if done.returncode != 0:
                wrong += 1
                print(done.stderr)
        if "data race" not in run(program, "3", "race").stderr:
            wrong += 1
            print("a race was not reported")
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
