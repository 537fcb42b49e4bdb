"""Counts of memory traffic, barriers and SIMD-group operations of Metal kernels, in simulation.

They do not tell times on Metal, with one exception: a kernel that reads each tensor once cannot be
faster than the chip's memory moves those bytes.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Memory bandwidth in GB/s, from Apple's specifications.
CHIPS = {"M1": 68, "M1 Max": 400, "M4": 120, "M4 Pro": 273, "M4 Max": 546}
_THREADGROUP_MEMORY = 32 << 10  # per core
# The package that the device is built with and runs in, and where pip finds it in a checkout.
NEEDED = {"metalsim": "./tools/metalsim"}
NEEDED |= dict.fromkeys(("cmake", "nanobind", "ninja", "pytest"), "'.[cpu,test]'")
COLUMNS = ["section", "op", "dtype", "rows", "length", "provider", "array", "bytes_each"]
COLUMNS += ["bytes_read", "bytes_written", "barriers", "simd_ops", "threadgroups"]
COLUMNS += ["threadgroup_bytes"]
COLUMNS += [f"least_us_{name.replace(' ', '_')}" for name in CHIPS]
BOUND = (
    "≥ µs is a bound and no measurement: the least time in which the chip's memory, at the GB/s "
    "that Apple names, moves every array once. It is given for kernels that ask once for every "
    "tensor of x's shape."
)


@dataclass(frozen=True)
class Counts:
    """Counts of one call of a provider.

    Attributes:
        bytes: Bytes read and written, by array.
        of_rows: The bytes of arrays that are not parameters.
        barriers, simd_ops: Threadgroup barriers over all threadgroups, and SIMD-group operations.
        threadgroups: The number of threadgroups that ran.
        threadgroup_bytes: The largest threadgroup memory of a threadgroup.
    """

    config: object
    provider: str
    bytes: dict[str, tuple[int, int]]
    of_rows: int
    barriers: int
    simd_ops: int
    threadgroups: int
    threadgroup_bytes: int

    @property
    def one_read(self) -> bool:
        """Whether each tensor is read or written only once."""
        return not self.multiplies and self.of_rows <= self.config.moved

    @property
    def multiplies(self) -> bool:
        return self.config.op == "sgemm"

    def least_seconds(self, chip: str) -> float:
        """The time to move the compulsory bytes; NaN if the kernel moves more than these."""
        if not self.one_read:
            return math.nan
        return self.config.compulsory / (CHIPS[chip] * 1e9)

    def each(self, count: float) -> float:
        """A count per element, or, for a matmul, per multiply-add."""
        return count / (self.config.flops / 2 if self.multiplies else self.config.elements)

    @property
    def of_each(self) -> int:
        """The number of rows, or threadgroups for a matmul, that barriers and SIMD ops are per."""
        return self.threadgroups if self.multiplies else self.config.elements // self.config.length


def count(jobs: Iterable[tuple[object, str]]) -> list[Counts]:
    """The counts of a call of each (config, provider): "ours", or the name of a rung.

    Raises:
        RuntimeError: If metalsim is not installed, the device does not build, or the kernels do
            not run in it.
    """
    jobs = list(jobs)
    for name, package in NEEDED.items():
        if importlib.util.find_spec(name) is None:
            raise RuntimeError(
                f"the simulated Metal device needs {name}: type  pip install {package}  in {ROOT}"
            )
    described = [
        {"op": c.op, "dtype": c.dtype, "rows": c.rows, "length": c.length, "backward": c.backward}
        | {"provider": provider}
        for c, provider in jobs
    ]
    done = subprocess.run(
        [sys.executable, ROOT / "tools", "counts.configs"],
        input=json.dumps(described),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    found = json.loads(done.stdout)
    return [Counts(*job, **counts) for job, counts in zip(jobs, found, strict=True)]


def table(found: list[Counts], title: str):
    """Counts of one kind as a table for the terminal."""
    from harness import tables

    multiplies = found[0].multiplies
    byte, whole = ("B/multiply-add", "a group") if multiplies else ("B/element", "a row")
    bounds = any(counts.one_read for counts in found)
    headings = [byte, f"barriers {whole}", f"SIMD ops {whole}", "threadgroup B"]
    headings += ["groups in 32 KB"] * multiplies + [f"{name} ≥ µs" for name in CHIPS] * bounds
    texts = ("op", "dtype", "shape", "provider", f"{byte} by array")
    table = tables.table(title, texts, headings, lines=False)
    for counts in found:
        config = counts.config
        arrays = {name: counts.each(sum(both)) for name, both in counts.bytes.items()}
        least = [counts.least_seconds(chip) * 1e6 for chip in CHIPS]
        table.add_row(
            *(config.op, config.dtype, f"{config.rows}x{config.length}", counts.provider),
            ", ".join(f"{name} {share:.3g}" for name, share in arrays.items()),
            f"{sum(arrays.values()):.3g}",
            f"{counts.barriers / counts.of_each:.3g}",
            f"{counts.simd_ops / counts.of_each:.3g}",
            str(counts.threadgroup_bytes),
            *([_groups(counts.threadgroup_bytes)] if multiplies else []),
            *(["" if math.isnan(us) else f"{us:.3g}" for us in least] if bounds else []),
        )
    return table


def _groups(size: int) -> str:
    return str(_THREADGROUP_MEMORY // size) if size else "any"


def rows(section: str, found: Iterable[Counts]) -> Iterable[dict[str, object]]:
    """The lines of a CSV file, one per array."""
    for counts in found:
        config = counts.config
        for array, (read, written) in counts.bytes.items():
            values = (
                section,
                config.op,
                config.dtype,
                config.rows,
                config.length,
                counts.provider,
            )
            values += (array, counts.each(read + written), read, written, counts.barriers)
            values += (counts.simd_ops, counts.threadgroups, counts.threadgroup_bytes)
            values += tuple(counts.least_seconds(chip) * 1e6 for chip in CHIPS)
            yield dict(zip(COLUMNS, values, strict=True))
