"""What a launch returns."""

from __future__ import annotations

from dataclasses import dataclass, field

KINDS = (
    "out-of-bounds device",
    "out-of-bounds threadgroup",
    "out-of-bounds private",
    "threadgroup race",
    "device race",
    "uninitialized threadgroup",
    "uninitialized device",
    "aliased read",
    "barrier divergence",
    "barrier after return",
    "SIMD divergence",
    "threadgroup memory limit",
    "thread limit",
    "misaligned access",
    "unwritten output",
    "access violation",
    "absent argument",
    "division by zero",
    "out of memory",
)


@dataclass
class Fault:
    """Something that a kernel must not do, at one place in its source.

    Attributes:
        kind: one of `KINDS`.
        kernel: host name of the kernel.
        message: what happened, the first time.
        file: name of the original source file.
        line: line in it; that of the kernel, where the fault has no place of its own.
        buffer: name of the parameter or of the array; "" where there is none.
        thread: index of the thread in its threadgroup, the first time.
        threadgroup: position of the threadgroup, the first time.
        count: how often it happened.
    """

    kind: str
    kernel: str
    message: str
    file: str
    line: int
    buffer: str = ""
    thread: int = 0
    threadgroup: tuple[int, int, int] = (0, 0, 0)
    count: int = 1

    def __str__(self):
        times = f" ({self.count} times)" if self.count > 1 else ""
        return (
            f"{self.file}:{self.line}: {self.kind} in '{self.kernel}': {self.message}"
            f" [thread {self.thread}, threadgroup {self.threadgroup}]{times}"
        )


@dataclass
class Result:
    """What a launch did.

    Attributes:
        faults: the faults, in the order in which they were first seen.
        bytes: by parameter name, the bytes that the threads requested to (read, write). Arguments
            that share a buffer have its sum each. All 0 at check level 0.
        barriers: threadgroup barriers passed, summed over the threadgroups.
        simd_ops: SIMD-group operations executed, summed over the SIMD-groups; a reduction, a
            shuffle, a vote and an operation on matrices count one each.
        threads: threads run.
        threadgroups: threadgroups run.
        threadgroup_bytes: threadgroup memory of one threadgroup, in units of 16 bytes.
    """

    faults: list[Fault] = field(default_factory=list)
    bytes: dict[str, tuple[int, int]] = field(default_factory=dict)
    barriers: int = 0
    simd_ops: int = 0
    threads: int = 0
    threadgroups: int = 0
    threadgroup_bytes: int = 0
