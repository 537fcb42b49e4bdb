"""How each planted kernel is launched, and what its repaired twin must compute.

The fault to report is not here: it is marked in the .metal, at the guilty line, by
`// FAULT: kind` or `// FAULT: kind: buffer`. Two marked lines of one kernel are the two sides of
one conflict: which one is met second, and so reported, is up to the schedule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FILES = sorted(Path(__file__).parent.glob("*.metal"))


@dataclass(frozen=True)
class Mark:
    """A line of a kernel that carries the planted fault; `buffer` is None where none is named."""

    line: int
    kind: str
    buffer: str | None


@dataclass(frozen=True)
class Case:
    """One planted kernel.

    `arrays` are the arguments, `expected` what the twin leaves in some of them. `launch` and
    `repaired` are keywords of `Library.launch`; the second go over the first for the twin.
    Nothing has written `uninitialized` arrays before the launch; `shared` names arguments that
    are one buffer with another one.
    """

    kernel: str
    arrays: dict
    expected: dict
    launch: dict
    repaired: dict = field(default_factory=dict)
    uninitialized: tuple = ()
    shared: dict = field(default_factory=dict)


def marks(path):
    """The marked lines of each kernel in a .metal file: {kernel: [Mark]}.

    Marks in a helper function belong to the kernel after it.
    """
    found, pending, kernel = {}, [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if name := re.match(r"kernel void (\w+)", line):
            kernel = name[1]
        if mark := re.search(r"// FAULT: ([\w -]+?)(?:: (\w+))?$", line):
            pending.append(Mark(number, mark[1], mark[2]))
        if line == "}" and kernel:
            found[kernel], pending, kernel = pending, [], None
    return found


def ramp(n, dtype=np.float32):
    """n values of both signs, all different up to 101, exact in half and in sums of hundreds."""
    return ((np.arange(n) * 37 % 101) / 4 - 7).astype(dtype)


def zeros(n, dtype=np.float32):
    return np.zeros(n, dtype)


def padded(values, n):
    """`values` with zeros after them, n in all."""
    return np.concatenate([values, np.zeros(n - len(values), values.dtype)])


def uints(*values):
    return np.array(values, np.uint32)


def xy(x, n=None):
    """The usual arguments: x, and a y of n elements (as many as x)."""
    return dict(x=x, y=zeros(len(x) if n is None else n))


def n_(value):
    return dict(n=np.uint32(value))


X, LONG = ramp(64), ramp(128)
ROWS = ramp(256).reshape(2, 128)
HALF = ramp(4 * 33, np.float16)
LANE = np.arange(32)
ONE, TWO, FOUR = dict(grid=32, group=32), dict(grid=64, group=64), dict(grid=128, group=128)


def within_simdgroup(values, reduce):
    """Each element replaced by the reduction of its SIMD-group."""
    return np.repeat(reduce(values.reshape(-1, 32), axis=1), 32)


DEVICE_MEMORY = [
    Case("read_past_end", xy(X) | n_(64), dict(y=X + np.append(X[1:], X[-1])), TWO),
    Case("read_before_start", xy(X), dict(y=X - np.append(X[0], X[:-1])), TWO),
    Case("write_past_end", xy(X), dict(y=X), TWO),
    Case(
        "missing_tail_guard",
        xy(LONG, 100) | n_(100),
        dict(y=2 * LONG[:100]),
        dict(groups=2, group=64),
    ),
    Case(
        "vector_tail",
        xy(X[:31], 8) | n_(31),
        dict(y=padded(X[:31], 32).reshape(8, 4).sum(1)),
        dict(grid=8, group=8),
    ),
    Case(
        "weight_by_element",
        xy(X) | dict(weight=X[:16], columns=np.uint32(16)),
        dict(y=X * np.tile(X[:16], 4)),
        dict(groups=4, group=16),
    ),
    Case("null_pointer", xy(X), dict(y=X), TWO),
    Case(
        "misaligned_float4",
        xy(X[:33], 8),
        dict(y=X[1:33].reshape(8, 4).sum(1)),
        dict(grid=8, group=8),
    ),
    Case(
        "misaligned_uint4_row",
        xy(HALF, 4) | dict(columns=np.uint32(33)),
        dict(y=HALF.reshape(4, 33)[:, :8].astype(np.float32).sum(1)),
        dict(grid=4, group=4),
    ),
    Case(
        "misaligned_half4_write",
        dict(x=X[:8], y=zeros(34, np.float16)),
        dict(y=np.append(zeros(2), np.repeat(X[:8], 4)).astype(np.float16)),
        dict(grid=8, group=8),
    ),
    Case(
        "tail_not_written",
        xy(LONG[:100]) | n_(100),
        dict(y=-LONG[:100]),
        TWO | dict(out=["y"]),
    ),
    Case("accumulate_into_uninitialized", xy(X), dict(y=X), TWO, uninitialized=("y",)),
    Case("neighbor_without_barrier", xy(X) | dict(scratch=zeros(64)), dict(y=3 * X[::-1]), TWO),
    Case("device_exchange_wrong_flags", xy(X) | dict(scratch=zeros(64)), dict(y=3 * X[::-1]), TWO),
    Case(
        "sum_without_atomic",
        dict(x=LONG, total=zeros(1)),
        dict(total=LONG.sum(keepdims=True)),
        dict(groups=2, group=64),
    ),
    Case("overlapping_rows", xy(X), dict(y=X), dict(groups=4, group=16)),
    Case("shift_in_place", dict(x=X, y=X), dict(x=np.roll(X, -1)), TWO, shared=dict(y="x")),
    Case("own_element_read_again", dict(x=X, y=X), dict(x=4 * X), TWO, shared=dict(y="x")),
    Case(
        "neighbor_through_input",
        dict(x=X, y=X, z=zeros(64)),
        dict(x=2 * X, z=2 * X[np.arange(64) ^ 1]),
        TWO,
        shared=dict(y="x"),
    ),
    Case(
        "histogram_cleared_late",
        dict(x=abs(X), bins=uints(5, 6, 7, 8)),
        dict(bins=np.bincount(abs(X).astype(int) & 3, minlength=4).astype(np.uint32)),
        TWO,
    ),
    Case(
        "reads_other_threadgroup",
        xy(LONG) | dict(sums=zeros(4)),
        dict(y=within_simdgroup(LONG, np.sum)),
        dict(groups=4, group=32),
    ),
]

THREADGROUP_MEMORY = [
    Case("past_end_of_array", xy(X), dict(y=X), TWO),
    Case("past_end_of_inner_dimension", xy(X[:4]), dict(y=X[:4]), dict(grid=4, group=4)),
    Case("past_end_of_argument", xy(X), dict(y=X), TWO | dict(tg={0: 64 * 4})),
    Case(
        "past_end_of_private_array",
        xy(LONG, 32) | dict(per_thread=np.uint32(4)),
        dict(y=LONG.reshape(32, 4).sum(1)),
        ONE,
    ),
    Case(
        "private_array_by_data",
        xy(X[:32]) | dict(choice=uints(*([0, 1] * 15 + [2, 3]))),
        dict(y=np.where(LANE % 2, -X[:32], X[:32])),
        ONE,
    ),
    Case("uninitialized_partials", xy(LONG), dict(y=np.full(128, LONG.sum())), FOUR),
    Case("uninitialized_tile_tail", xy(X) | n_(50), dict(y=np.full(64, X[:50].sum())), TWO),
    Case("reverse_without_barrier", xy(LONG), dict(y=LONG[::-1]), FOUR),
    Case("broadcast_without_barrier", xy(LONG), dict(y=LONG - LONG[0]), FOUR),
    Case("several_writers", xy(LONG), dict(y=np.full(128, LONG[-1])), FOUR),
    Case("two_sums_one_array", xy(LONG), dict(y=np.full(128, LONG.var())), FOUR),
    Case(
        "reused_in_next_row",
        xy(ROWS.ravel()) | dict(rows=np.uint32(2)),
        dict(y=(ROWS / ROWS.sum(1, keepdims=True)).ravel()),
        FOUR,
    ),
    Case("tree_without_barrier", xy(LONG, 1), dict(y=LONG.sum(keepdims=True)), FOUR),
    Case("exchange_in_simdgroup", xy(X[:32]), dict(y=X[LANE ^ 1]), ONE),
    *[
        Case(kernel, xy(LONG), dict(y=LONG[np.arange(128) ^ 32]), FOUR)
        for kernel in ("simdgroup_barrier_too_narrow", "barrier_mem_none", "barrier_mem_device")
    ],
    Case(
        "plain_read_of_atomic",
        dict(x=LONG, y=zeros(128, np.uint32)),
        dict(y=np.full(128, (LONG > 0).sum(), np.uint32)),
        FOUR,
    ),
]

CONTROL_FLOW = [
    Case(
        "barrier_in_each_branch",
        xy(X),
        dict(y=np.where(np.arange(64) < 32, 1, -1) * X[np.arange(64) ^ 1]),
        TWO,
    ),
    Case("barrier_for_some", xy(X), dict(y=X - X[0]), TWO),
    Case(
        "barrier_after_tail_guard",
        xy(X[:50]) | n_(50),
        dict(y=X[np.arange(50) & ~1]),
        TWO,
    ),
    Case(
        "barrier_in_uneven_loop",
        xy(LONG[:96]) | n_(96),
        dict(y=LONG[np.arange(96) ^ 1]),
        TWO,
    ),
    Case("simd_sum_in_branch", xy(X[:32]), dict(y=np.full(32, X[:20].sum())), ONE),
    Case("shuffle_from_inactive_lane", xy(X[:32]), dict(y=X[:32] + X[16:48] * (LANE < 16)), ONE),
    Case(
        "two_simd_functions_at_once",
        xy(X[:32]),
        dict(y=np.where(LANE < 16, X[:32].sum(), X[:32].max())),
        ONE,
    ),
    Case(
        "simd_sum_in_uneven_loop", xy(X[:52], 32) | n_(52), dict(y=np.full(32, X[:52].sum())), ONE
    ),
]

LIMITS = [
    Case("threadgroup_memory_over_limit", xy(X), dict(y=X[np.arange(64) ^ 1]), TWO),
    Case(
        "threadgroup_argument_over_limit",
        xy(X),
        dict(y=2 * X[np.arange(64) ^ 1]),
        TWO | dict(tg={0: 20 * 1024}),
    ),
    Case(
        "too_many_threads",
        xy(ramp(33 * 32)),
        dict(y=padded(2 * ramp(1024), 33 * 32)),
        dict(groups=1, group=(33, 32)),
        repaired=dict(group=(32, 32)),
    ),
]

ARITHMETIC = [
    Case(
        "empty_part",
        dict(x=uints(8, 9, 10, 11), y=zeros(4, np.uint32), parts=uints(2, 3, 0, 5)),
        dict(y=uints(4, 3, 0, 2)),
        dict(grid=4, group=4),
    ),
]

ARGUMENTS = [
    Case(kernel, xy(X), dict(y=X), TWO)
    for kernel in ("copied_into_struct", "passed_to_function", "behind_a_position")
]

CASES = ARGUMENTS + ARITHMETIC + DEVICE_MEMORY + THREADGROUP_MEMORY + CONTROL_FLOW + LIMITS
