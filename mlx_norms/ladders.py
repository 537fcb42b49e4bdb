"""The ladders: one op as a series of better and better kernels, for study.

`layer_norm` and `sgemm` accept the name of a rung as ``rung``. Each rung fixes something that can
be measured in the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from . import _ext

__all__ = ["LAYER_NORM", "SGEMM", "Rung", "layer_norm", "sgemm"]


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


def layer_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    rung: str = "simd",
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""Layer norm over the last axis with a rung of the ladder, on a GPU.

    .. math::

        y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} w + b

    The rungs are for study: :data:`mlx_norms.ladders.LAYER_NORM` says what
    each one fixes in the one before it. They follow
    `sshkhr/metal-layernorm-torch
    <https://github.com/sshkhr/metal-layernorm-torch>`_, but are correct for
    any size, and compute in float32 up to the result. Derivatives are those
    of :func:`mlx_norms.layer_norm`. The last rung, ``"ours"``, is
    :func:`mlx_norms.layer_norm` with its default options.

    Args:
        x (array): Input of shape ``[..., D]``, of a dtype that the rung
          accepts: float32, for ``"welford"`` also float16.
        weight (array, optional): A weight of shape ``[D]``, of ``x``'s
          dtype. If ``None`` the result is not scaled.
        bias (array, optional): Added to the result, of shape ``[D]`` and
          ``x``'s dtype. If ``None`` nothing is added.
        eps (float): Added to the variance. Not negative. Default:
          ``1e-5``.
        rung (str): The name of one of :data:`mlx_norms.ladders.LAYER_NORM`.
          Default: ``"simd"``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The normalized input, of ``x``'s shape and dtype.

    Raises:
        ValueError: If an argument's dtype or shape is not as above, ``x``
          has no axis, ``eps`` is negative, there is no such ``rung``, or
          a rung other than ``"ours"`` is called on the CPU.
    """
    return _ext.layer_norm_by_rung(x=x, weight=weight, bias=bias, eps=eps, rung=rung, stream=stream)


def sgemm(
    a: mx.array, b: mx.array, *, rung: str = "tile_16", stream: mx.StreamOrDevice = None
) -> mx.array:
    r"""Matrix multiplication with a rung of the ladder, on a GPU.

    .. math::

        c_{ij} = \sum_k a_{ik} b_{kj}

    Shapes and broadcasting are as in :func:`mlx_norms.matmul`.

    The rungs are for study: :data:`mlx_norms.ladders.SGEMM` says what each
    one fixes in the one before it. The last is far slower than MLX's
    matmul. They follow `vietfood/gemm_metal
    <https://github.com/vietfood/gemm_metal>`_, but are correct for any
    size. They accumulate in float32, in the order of :math:`k` (on Metal,
    ``tile_simdgroup`` in blocks of 8). Gradients are matmuls with the same
    rung.

    Args:
        a (array): Input of shape ``[..., M, K]`` or ``[K]``, float32.
        b (array): Input of shape ``[..., K, N]`` or ``[K]``, float32.
        rung (str): The name of one of :data:`mlx_norms.ladders.SGEMM`:
          ``"naive"``, ``"tile_16"``, ``"tile_32"``, ``"tile_threads"`` or
          ``"tile_simdgroup"``. Default: ``"tile_16"``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The product, of shape ``[..., M, N]``.

    Raises:
        ValueError: If ``a`` or ``b`` has no axis, their shapes do not
          match, they are not float32, there is no such ``rung``, or it is
          called on the CPU.
    """
    return _ext.sgemm_by_rung(a=a, b=b, rung=rung, stream=stream)
