"""Runs the CPU kernels on their thread pool under ThreadSanitizer, which must report nothing.

    python tests/tsan.py

The race that the program has on request must be reported.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = (
    "tests/tsan/norms_on_threads.cpp",
    "csrc/cpu/threads.cpp",
    "csrc/cpu/isa.cpp",
    "csrc/cpu/norm_kernels.cpp",
)
# One level, the baseline: which thread has which rows is settled before a level is called.
BASELINE = ["-ffp-contract=off", "-DMLX_NORMS_KERNELS=kernels_baseline"]
THREADS = ("2", "3", "16")


def build(directory: Path) -> Path:
    common = ["c++", "-std=c++20", "-O1", "-g", "-w", "-fsanitize=thread", f"-I{ROOT}"]
    common += BASELINE
    objects = [directory / f"{Path(source).name}.o" for source in SOURCES]

    def compile(source: str, output: Path) -> None:
        subprocess.run([*common, "-c", ROOT / source, "-o", output], check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile, SOURCES, objects))
    program = directory / "norms_on_threads"
    subprocess.run([*common, *objects, "-pthread", "-o", program], check=True)
    return program


def run(program: Path, threads: str, *arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"MLX_NORMS_CPU_THREADS": threads}
    return subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        program = build(Path(directory))
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
