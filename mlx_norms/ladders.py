"""The ladders: an op in better and better kernels, each of which fixes something.

``SGEMM`` has the rungs of :func:`mlx_norms.matmul`, in order. A rung's name is what the op takes as
``kernel``, on a GPU.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlx_norms import _ext

__all__ = ["SGEMM", "Rung"]


@dataclass(frozen=True)
class Rung:
    """A kernel of a ladder.

    Attributes:
        name: what the op takes as ``kernel``.
        fixes: what it does about the rungs before it.
        dtypes: what its arrays may be of.
    """

    name: str
    fixes: str
    dtypes: tuple[mx.Dtype, ...]


def _ladder(rungs) -> tuple[Rung, ...]:
    return tuple(Rung(name, fixes, tuple(dtypes)) for name, fixes, dtypes in rungs)


SGEMM = _ladder(_ext.sgemm_rungs())
