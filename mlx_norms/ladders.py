"""The ladders: one op in better and better kernels, for study.

`layer_norm` and `sgemm` take the name of a rung as their ``rung``; each rung fixes what can be
measured of the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from . import _ext
from ._ext import layer_norm_by_rung as layer_norm
from ._ext import sgemm_by_rung as sgemm

__all__ = ["LAYER_NORM", "SGEMM", "Rung", "layer_norm", "sgemm"]


@dataclass(frozen=True)
class Rung:
    """A kernel of a ladder.

    Attributes:
        name: What the op takes as its ``rung``.
        fixes: What is better in it than in the rung before.
        dtypes: The dtypes that it takes.
    """

    name: str
    fixes: str
    dtypes: tuple[mx.Dtype, ...]


def _ladder(rungs: list[tuple[str, str, list[mx.Dtype]]]) -> tuple[Rung, ...]:
    return tuple(Rung(name, fixes, tuple(dtypes)) for name, fixes, dtypes in rungs)


LAYER_NORM = _ladder(_ext.layer_norm_rungs())
SGEMM = _ladder(_ext.sgemm_rungs())
