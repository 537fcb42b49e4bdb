"""SPIR-V to an Apple GPU's instructions by Mesa, and what Mesa says of them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .packages import Tree

CHIPS = ("g13g", "g14g")  # M1, M2

_STATISTICS = re.compile(
    r"CS shader: (?P<instructions>\d+) instrs, .*?(?P<code_bytes>\d+) code size, "
    r"(?P<half_registers>\d+) gprs, .*?(?P<threads_per_core>\d+) threads, .*?"
    r"(?P<spills>\d+):(?P<fills>\d+) spills:fills"
)
_LOCAL = re.compile(r"^threadgroup bytes: (\d+)", re.M)
_OPERATION = re.compile(r"^ {3}(?:[^=]* = )?([a-z][a-z0-9_]*)")
_DISASSEMBLY = re.compile(r"^ +0: [0-9a-f]{4,} ")

_CLASSES = {
    "load": "device_load",
    "store": "device_store",
    "threadgroup": "local_load local_store",
    "stack": "stack_load stack_store stack_adjust",
    "atomic": "atomic local_atomic",
    "simd": "simd_reduce simd_prefix quad_reduce quad_prefix shuffle shuffle_xor shuffle_up"
    " shuffle_down quad_shuffle quad_shuffle_xor icmp_ballot fcmp_ballot",
    "float": "ffma fmul fadd hfma hmul hadd",
    "special": "rcp rsqrt srsqrt exp2 log2 sin_pt_1 sin_pt_2",
    "wait": "wait",
    "barrier": "threadgroup_barrier memory_barrier",
    "move": "mov mov1 mov_imm get_sr",
}
_CLASS_OF = {name: of for of, names in _CLASSES.items() for name in names.split()}
_FLOW = ("jmp", "if_", "else_", "while_", "pop_exec", "push_exec", "break", "stop", "begin_cf")
_FLOW += ("logical", "trap")
CLASSES = (*_CLASSES, "flow", "integer")


@dataclass(frozen=True)
class Statistics:
    """What Mesa says of a kernel.

    Attributes:
        half_registers: 16-bit halves of registers of a thread, of 256.
        threads_per_core: those that can be on a core at once with so many.
        instructions: all, but for those that run once a launch.
        classes: the same by class.
        spills, fills: stores of registers to memory and loads of them.
        code_bytes: of the instructions.
        threadgroup_bytes: static threadgroup memory.
    """

    half_registers: int
    threads_per_core: int
    instructions: int
    classes: Mapping[str, int]
    spills: int
    fills: int
    code_bytes: int
    threadgroup_bytes: int


@dataclass(frozen=True)
class Output:
    """What Mesa printed of a kernel, to both streams."""

    listing: str
    messages: str


def class_of(operation: str) -> str:
    """The class of an instruction, by its name in Mesa's listing."""
    if operation.startswith(_FLOW):
        return "flow"
    return _CLASS_OF.get(operation, "integer")


def statistics(output: Output) -> Statistics | str:
    """What Mesa says of a kernel, or why there is nothing."""
    found = _STATISTICS.search(output.messages)
    if found is None:
        lines = [line for line in output.messages.splitlines() if line.strip()]
        said = next((line for line in lines if not _LOCAL.match(line)), "it said nothing")
        return f"Mesa: {said[:200]}"
    numbers = {name: int(value) for name, value in found.groupdict().items()}
    counts = Counter(map(class_of, operations(output.listing)))
    local = _LOCAL.search(output.messages)
    return Statistics(
        classes={name: counts[name] for name in CLASSES},
        threadgroup_bytes=int(local[1]) if local else 0,
        **numbers,
    )


def operations(listing: str) -> list[str]:
    """The instructions' names in the last of the listings before the disassembly."""
    last: list[str] = []
    for line in listing.splitlines():
        if _DISASSEMBLY.match(line):
            break
        if line.startswith("block0 {"):
            last = []
        last.append(line)
    return [found[1] for line in last if (found := _OPERATION.match(line))]


def compile_all(
    tree: Tree, kernels: Mapping[Path, tuple[int, int, int]], chip: str
) -> dict[Path, Output]:
    """What Mesa prints of each SPIR-V file, of one kernel with this threadgroup, for a chip."""
    outputs: dict[Path, Output] = {}
    left = dict(kernels)
    while left:
        listings, messages, status = _run(tree, left, chip)
        for path in [path for path in left if str(path) in messages]:
            output = Output(listings.get(str(path), ""), messages[str(path)])
            if path == list(left)[len(messages) - 1] and status != 0:
                output = Output(output.listing, output.messages + f"\nstatus {status}")
            outputs[path] = output
        if not messages:
            raise RuntimeError(f"Mesa does not start: status {status}")
        # A kernel that Mesa crashes at takes the process along: the next begins behind it.
        left = dict(list(left.items())[len(messages) :])
    return outputs


def _run(tree: Tree, kernels, chip: str) -> tuple[dict[str, str], dict[str, str], int]:
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            "AGX_CHIP": chip,
            "AGX_MEMORY": f"{folder}/memory",
            "AGX_MESA_DEBUG": "shaders,shaderdb",
            "AGX_ROOT": str(tree.root),
            "MESA_SHADER_CACHE_DISABLE": "1",
            "OCL_ICD_VENDORS": f"{tree.root}/etc/OpenCL/vendors",
            "RUSTICL_ENABLE": "asahi",
        }
        command = tree.command("compile_kernels", "--preload", str(tree.root / "agxshim.so"))
        for path, group in kernels.items():
            command += [str(path), ",".join(map(str, group))]
        done = subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True, errors="replace"
        )
    return _split(done.stdout), _split(done.stderr), done.returncode


def _split(printed: str) -> dict[str, str]:
    parts = f"\n{printed}".split("\n==== ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}
