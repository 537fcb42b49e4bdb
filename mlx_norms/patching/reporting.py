"""What has become of the norms that patched code asked for."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _ext
from . import call_sites


@dataclass(frozen=True)
class Report:
    """Counts of the calls of ``mx.fast.rms_norm`` and ``mx.fast.layer_norm`` that a patch acted on.

    They are of the whole process. A compiled function calls them only while it is traced.

    Args:
        calls (int): The calls.
        fused (int): Those computed in one node with the sum they take. What the graph pass of
          :func:`mlx_norms.fuse` fuses is counted here too.
        passed_on (int): Those that were left to ``mx.fast``.
        offsets (int): Those whose weight was a pending ``1 + w`` and became a ``weight_offset``.
        reasons (dict): The calls by what became of them, and why.
        sites (dict): The calls by ``("file:line", reason)``, with
          ``mlx_norms.patched(trace=True)``.
        projections (int): The norms that were computed with the products that take them, once
          for each evaluation, with ``projections=True``.
    """

    calls: int
    fused: int
    passed_on: int
    offsets: int
    reasons: dict[str, int]
    sites: dict[tuple[str, str], int]
    projections: int

    def __str__(self) -> str:
        lines = [
            f"{self.calls} calls, {self.fused} fused, {self.passed_on} passed on to mx.fast, "
            f"{self.offsets} with an offset of the weight"
        ]
        if self.projections:
            lines.append(f"{self.projections} computed with the products that take them")
        lines += [f"{count:8}  {reason}" for reason, count in self.reasons.items()]
        lines += [f"{count:8}  {site}  {reason}" for (site, reason), count in self.sites.items()]
        return "\n".join(lines)


def report() -> Report:
    """The counts since :func:`mlx_norms.patch`, or the outermost :func:`mlx_norms.patched`.

    Returns:
        Report: The counts; printed, a table of the reasons.
    """
    counts = _ext.patch_counts()
    return Report(calls=sum(counts["reasons"].values()), sites=call_sites.counts(), **counts)


def reset() -> None:
    """Start counting anew."""
    _ext.reset_patch_counts()
    call_sites.reset()
