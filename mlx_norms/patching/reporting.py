"""The outcomes of the norms that patched code called."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import _ext
from . import replaced, taken

_CAUSES = """\
- the model has not run since, or is not the one patched, or ran in another thread than patched()
- it was compiled (mx.compile) before: what is compiled before patch() stays as it was
- it writes its own norms in a way that is not recognized
- it took a function of mx.fast by name before; those that modules hold are named below"""


@dataclass(frozen=True)
class Report:
    """Counts of the calls of ``mx.fast``'s norms and of ``mlx.nn``'s that a patch acted on.

    These are ``mx.fast.rms_norm`` and ``layer_norm``, and the layers ``GroupNorm``,
    ``InstanceNorm`` and ``BatchNorm``, which take no residual add. They cover the whole process. A
    compiled function makes these calls only while it is traced.

    Args:
        calls (int): The calls.
        fused (int): The calls that were fused with the residual add before them. Those that the
          graph pass of :func:`mlx_norms.fuse` fuses are included.
        passed_on (int): The calls that were left to ``mx.fast`` or ``mlx.nn``.
        offsets (int): The calls whose weight was a pending ``1 + w`` and became a
          ``weight_offset``.
        reasons (dict): The number of calls by outcome and reason.
        projections (int): The norms that were computed with the matmuls that read them, counted
          once per evaluation, with ``projections=True``.
        products (int): The other quantized products that our kernel computed, counted likewise.
        missed (tuple): The names in loaded modules, as ``"module.rms_norm"``, that have held a
          function of ``mx.fast``, ``mx.eval`` or ``mx.async_eval`` since before the patch, as by
          ``from mlx.core.fast import rms_norm``, so that its calls are not seen. They are looked
          for by :func:`mlx_norms.report`. It is empty if nothing is patched then.
        is_patched (bool): Whether anything was patched when the report was made.
        written (dict): The norms that are written in MLX's operations, which the passes over graphs
          replaced, by op. They are not among the calls.
        around (dict): What those passes made part of a norm, besides additions, by kind.
        left (dict): The functions of ``mx.fast`` and calls of ``mlx.nn``'s layers in whose place
          others had put something before the patch, and what it is. They are not among the calls.
        ropes (int): The norms of heads, among the calls, that were computed with the transpose and
          the ``mx.fast.rope`` after them.
        rope_pairs (int): The pairs of these, of queries and keys, that are one launch.
    """

    calls: int
    fused: int
    passed_on: int
    offsets: int
    reasons: dict[str, int]
    projections: int
    products: int
    missed: tuple[str, ...]
    is_patched: bool
    written: dict[str, int] = field(default_factory=dict)
    around: dict[str, int] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    ropes: int = 0
    rope_pairs: int = 0

    def __str__(self) -> str:
        if self.calls:
            lines = self._of_calls()
        elif self.written or self.around:
            lines = ["no call of MLX's norms, but of norms by other code:"]
        else:
            lines = self._of_no_calls()
        if self.projections:
            lines.append(f"{self.projections} computed with the products that take them")
        if self.products:
            lines.append(f"{self.products} other quantized products")
        if self.ropes:
            lines.append(
                f"{self.ropes} computed with the rope after them, {self.rope_pairs} pairs at once"
            )
        lines += [f"{count:8}  {reason}" for reason, count in self.reasons.items()]
        lines += [f"{n:8}  written in operations, as {op}" for op, n in self.written.items()]
        lines += [f"{count:8}  with {kind}" for kind, count in self.around.items()]
        lines += [f"{name} is left as it is: {why}" for name, why in self.left.items()]
        lines += [
            f"{name} is MLX's own, taken before patch(): its calls are not seen. Call patch() "
            "before that import."
            for name in self.missed
        ]
        return "\n".join(lines)

    def _of_calls(self) -> list[str]:
        ours = self.calls - self.passed_on
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        lines = [
            f"{calls}: {ours} by mlx_norms, {self.passed_on} left to MLX",
            f"{self.fused} fused with the addition before them",
        ]
        if self.offsets:
            lines.append(f"{self.offsets} with a weight 1 + w taken as w and an offset")
        return lines

    def _of_no_calls(self) -> list[str]:
        if self.is_patched:
            return ["0 calls: no patched norm was called since patch(). It may be that", _CAUSES]
        return [
            "0 calls: nothing is patched. Call mlx_norms.patch() before the model runs, or run it",
            "within mlx_norms.patched(). If it did run patched, it may be that",
            _CAUSES,
        ]


def report() -> Report:
    """The counts since :func:`mlx_norms.patch`, or the outermost :func:`mlx_norms.patched`.

    Returns:
        Report: The counts. It prints what ran here and what was left to MLX, and why; without
        a call, what may be the cause.
    """
    counts = _ext.patch_counts()
    return Report(
        calls=sum(counts["reasons"].values()),
        left=replaced.left(),
        missed=taken.names(),
        is_patched=replaced.is_used(),
        **counts,
    )


def reset() -> None:
    """Reset the counts."""
    _ext.reset_patch_counts()
