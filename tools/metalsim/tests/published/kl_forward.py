"""Prints the kernel kl_forward of mlx-lm as a Metal file: its text, in the declaration MLX makes.

    python kl_forward.py [mlx_lm-0.32.2-py3-none-any.whl]

Without a wheel it is taken from the mlx-lm that is installed. Nothing of it is imported.
"""

import ast
import importlib.metadata
import importlib.util
import sys
import zipfile
from pathlib import Path

VERSION = "0.32.2"
SOURCE = "tuner/losses.py"
# As mx.fast.metal_kernel declares it, which passes the length of rows as V.
HEAD = """#include <metal_stdlib>
using namespace metal;

template <typename T, int V>
[[kernel]] void kl_forward(
    const device T* logits_q [[buffer(0)]],
    const device T* logits_p [[buffer(1)]],
    device T* out [[buffer(2)]],
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
"""
TAIL = """}

template [[host_name("kl_forward")]] [[kernel]] decltype(kl_forward<float, 5000>)
    kl_forward<float, 5000>;
"""


def losses(wheel: str | None = None) -> str | None:
    """The source file that has the kernel, of a wheel or the installed package; None without."""
    if wheel:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(f"mlx_lm/{SOURCE}").decode()
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or importlib.metadata.version("mlx-lm") != VERSION:
        return None
    return (Path(spec.submodule_search_locations[0]) / SOURCE).read_text()


def metal(source: str) -> str:
    """The Metal file: the first text that _make_kl_forward_kernel calls its source."""
    for node in ast.parse(source).body:
        if getattr(node, "name", "") == "_make_kl_forward_kernel":
            for assigned in ast.walk(node):
                if isinstance(assigned, ast.Assign) and assigned.targets[0].id == "source":
                    return HEAD + assigned.value.value + TAIL
    raise ValueError(f"mlx_lm/{SOURCE} has no kernel kl_forward: is it of mlx-lm {VERSION}?")


if __name__ == "__main__":
    source = losses(*sys.argv[1:2])
    if source is None:
        raise SystemExit(f"mlx-lm {VERSION} is not installed: give its wheel")
    print(metal(source), end="")
