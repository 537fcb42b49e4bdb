"""The ladders: one op as a series of better and better kernels, for study.

`layer_norm` and `sgemm` accept the name of a rung as ``rung``. Each rung fixes something that can
be measured in the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from . import _ext, _functions
from ._ext import layer_norm_by_rung as layer_norm
from ._ext import sgemm_by_rung as sgemm

__all__ = ["LAYER_NORM", "SGEMM", "Rung", "layer_norm", "sgemm"]

_functions.expose(globals())


@dataclass(frozen=True)
class Rung:
    """A kernel of a ladder.

    Attributes:
        name: The value of the op's ``rung``.
        fixes: What it does better than the rung before it.
        dtypes: The dtypes that it accepts.
    """

    name: str
    fixes: str
    dtypes: tuple[mx.Dtype, ...]


def _ladder(rungs: list[tuple[str, str, list[mx.Dtype]]]) -> tuple[Rung, ...]:
    return tuple(Rung(name, fixes, tuple(dtypes)) for name, fixes, dtypes in rungs)


LAYER_NORM = _ladder(_ext.layer_norm_rungs())
SGEMM = _ladder(_ext.sgemm_rungs())
