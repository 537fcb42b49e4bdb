"""The outcomes of the norms that patched code called."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _ext
from . import call_sites


@dataclass(frozen=True)
class Report:
    """Counts of the calls of ``mx.fast``'s norms, and of ``mlx.nn``'s, that a patch acted on.

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
        sites (dict): The number of calls by ``("file:line", reason)``, with ``trace=True``.
        projections (int): The norms that were computed with the matmuls that read them, counted
          once per evaluation, with ``projections=True``.
        products (int): The other quantized products that our kernel computed, counted likewise.
    """

    calls: int
    fused: int
    passed_on: int
    offsets: int
    reasons: dict[str, int]
    sites: dict[tuple[str, str], int]
    projections: int
    products: int

    def __str__(self) -> str:
        lines = [
            f"{self.calls} calls, {self.fused} fused, {self.passed_on} passed on to MLX, "
            f"{self.offsets} with an offset of the weight"
        ]
        if self.projections:
            lines.append(f"{self.projections} computed with the products that take them")
        if self.products:
            lines.append(f"{self.products} other quantized products")
        lines += [f"{count:8}  {reason}" for reason, count in self.reasons.items()]
        lines += [f"{count:8}  {site}  {reason}" for (site, reason), count in self.sites.items()]
        return "\n".join(lines)


def report() -> Report:
    """The counts since :func:`mlx_norms.patch`, or the outermost :func:`mlx_norms.patched`.

    Returns:
        Report: The counts, which print as a table of the reasons.
    """
    counts = _ext.patch_counts()
    return Report(calls=sum(counts["reasons"].values()), sites=call_sites.counts(), **counts)


def reset() -> None:
    """Reset the counts."""
    _ext.reset_patch_counts()
    call_sites.reset()
