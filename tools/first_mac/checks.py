"""selftest's checks, those of a library's kernels in a process, and the limits of pipelines."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping

from . import items

LIBRARIES = (
    "norm",
    "rope",
    "linear",
    "rms_norms",
    "norm_add_norm",
    "channels",
    "group_norm",
    "matmul",
)
_TINY_SIZES, _TINY_CHECKS = 2, 3
_TINY_DTYPE = _VALIDATED_DTYPE = "bfloat16"


def library_of(label: str) -> str:
    """The name, in LIBRARIES, for the kernels of one of selftest's checks."""
    if "axis 1" in label:
        return "channels"
    op = label.split(",")[0].split(" ")[0]
    if op in ("norm_rope", "qk_norm_rope"):
        return "rope"
    if op in ("group_norm", "instance_norm", "batch_norm"):
        return "group_norm"
    if op == "quantized_matmul" or op.endswith("_linear"):
        return "linear"
    return op if op in LIBRARIES else "norm"


def listed(library: str, validated: bool) -> Iterator[items.Item]:
    """Checks of a library; with Metal's validation of calls in one dtype, and in tiny runs."""
    # Otherwise a kernel that fails its check would be replaced, and MLX's ops tested instead.
    os.environ["MLX_NORMS_SELF_CHECK"] = "0"
    import mlx.core as mx

    from mlx_norms import _built
    from mlx_norms.commands import selftest

    # selftest's own builds every library, to say of a refused one that it said it before.
    selftest._said = items.said
    simulated = "metal-sim" in _built.BACKENDS
    if simulated:
        mx.set_default_device(mx.cpu)
    if items.is_tiny():
        _make_tiny(selftest)
    dtype = _TINY_DTYPE if items.is_tiny() else _VALIDATED_DTYPE if validated else ""
    seen: set[str] = set()

    def outcome(check) -> Mapping[str, object]:
        problems = check()
        found: dict[str, object] = {"pipelines": [*new_pipelines(seen)]}
        if problems:
            found |= {"status": items.FAILED, "reason": items.private("; ".join(problems))[:3000]}
        return found

    with _on_a_gpu(simulated):
        checks = selftest.checks()
    chosen = [
        (label, lambda check=check: outcome(check))
        for label, check in checks
        if library_of(label) == library and label.endswith(dtype)
    ]
    yield from chosen[: (1 if validated else _TINY_CHECKS) if items.is_tiny() else None]


class _on_a_gpu:
    """The simulated device is a CPU's, of which selftest leaves out what has kernels on GPUs."""

    def __init__(self, simulated: bool) -> None:
        self._simulated = simulated

    def __enter__(self) -> None:
        import mlx.core as mx

        if self._simulated:
            self._default = mx.default_device
            mx.default_device = lambda: mx.gpu

    def __exit__(self, *_) -> None:
        import mlx.core as mx

        if self._simulated:
            mx.default_device = self._default


def _make_tiny(selftest) -> None:
    from mlx_norms.commands import _checked

    for of in (_checked.Checked, _checked.CheckedHeads, _checked.CheckedImages):
        of.sizes = of.sizes[:_TINY_SIZES]
    for name in ("_PROJECTIONS", "_QUANTIZED"):
        setattr(selftest, name, getattr(selftest, name)[1:3])
    for kernel, shapes in selftest._PRODUCTS.items():
        selftest._PRODUCTS[kernel] = shapes[:1]


def new_pipelines(seen: set[str]) -> Iterator[dict]:
    """The limits of pipelines that were built since: the most threads, and those of its launch."""
    from mlx_norms import _ext

    for name, most, memory, group in _ext.built_pipelines():
        if name not in seen:
            seen.add(name)
            kernel = next((each for each in kernels() if name.startswith(each)), name)
            limits = {"most": most, "group": group, "memory": memory}
            yield {"name": name, "kernel": kernel} | limits


@functools.cache
def kernels() -> list[str]:
    """The names of all kernels, of which no later one is the beginning of another."""
    import join

    names = {name for text in join.texts().values() for name in join.by_kernel(text)[1]}
    return sorted(names, key=len, reverse=True)
