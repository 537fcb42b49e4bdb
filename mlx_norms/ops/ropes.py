"""Norms of heads with their rotary embedding."""

from __future__ import annotations

from typing import overload

import mlx.core as mx

from .. import _ext
from .types import Layout, Rounding

BASE = 10000.0


def norm_rope(
    x: mx.array,
    weight: mx.array | None,
    eps: float = 1e-5,
    dims: int | None = None,
    *,
    layout: Layout,
    offset: int | mx.array,
    traditional: bool = False,
    base: float | None = BASE,
    scale: float = 1.0,
    freqs: mx.array | None = None,
    weight_offset: float = 0.0,
    rope_first: bool = False,
    output_layout: Layout = "BHLD",
    rounding: Rounding | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""RMS norm of each head, and a rotary embedding, in one launch.

    .. math::

        n = \frac{x}{\sqrt{E[x^2] + \epsilon}} (w + w_0), \quad
        \theta_{l,i} = s (l + o) \beta^{-2 i / d}

    .. math::

        y_i = n_i \cos \theta_{l,i} - n_j \sin \theta_{l,i}, \quad
        y_j = n_i \sin \theta_{l,i} + n_j \cos \theta_{l,i}

    for the token ``l`` and each ``i < d / 2``, with ``d`` the ``dims``, ``s`` the ``scale``, ``o``
    the ``offset`` and :math:`\beta` the ``base``; ``j`` is ``i + d / 2``. Equivalent to
    :func:`rms_norm` and :func:`mlx.core.fast.rope`, which reads ``"BHLD"``.

    Args:
        x (array): Input of four axes, float32, float16 or bfloat16. Strided arrays, such as a part
          of packed queries, keys and values, are read in place.
        weight (array, optional): Of shape ``[D]`` or ``[H, D]``, of any of the three dtypes. If
          ``None`` the norm is not scaled.
        eps (float): Added to the mean square. Not negative. Default: ``1e-5``.
        dims (int, optional): How many of the first elements of a head are rotated, even; the others
          are normalized alone. Default: ``D``.
        layout (str): ``"BLHD"`` for ``x`` of shape ``[batch, tokens, heads, D]``, as a projection
          gives it, or ``"BHLD"`` for ``[batch, heads, tokens, D]``, as ``mx.fast.rope`` takes it.
        offset (int or array): The first token's position: a number, or an array of integers, a
          scalar or of shape ``[1]`` or ``[B]``. May be negative.
        traditional (bool): Rotate elements that adjoin: they are ``2 i`` and ``2 i + 1``. Default:
          ``False``.
        base (float, optional): The base of the angles. Default: ``10000.0``, and ``None`` with
          ``freqs``.
        scale (float): Multiplies positions. Default: ``1.0``.
        freqs (array, optional): Of shape ``[dims / 2]``: positions are divided by these in place of
          powers of the base.
        weight_offset (float): Added to ``weight`` in float32. Default: ``0.0``.
        rope_first (bool): Rotate, and then normalize. Default: ``False``.
        output_layout (str): The result's: ``"BHLD"``, for attention, or ``"BLHD"``.
        rounding (str, optional): ``"early"``: the norm is rounded to the dtype as by
          :func:`rms_norm` before it is rotated (or the rotated ``x`` before its norm), and on the
          CPU each step of the rotation, too, as by ``mx.fast.rope``. ``"late"``: only the result
          is. Default: ``"early"``, or ``"late"`` with a ``weight_offset``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The result, of ``x``'s dtype.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above, there are ``freqs`` and another
          ``base`` or neither, or there is a ``weight_offset`` and no weight; also by ``vjp`` for
          ``offset`` or ``freqs``.
    """
    return _ext.norm_rope(
        x=x,
        weight=weight,
        eps=eps,
        dims=dims,
        layout=layout,
        traditional=traditional,
        base=_base(base, freqs),
        scale=scale,
        offset=offset,
        freqs=freqs,
        weight_offset=weight_offset,
        rope_first=rope_first,
        output_layout=output_layout,
        rounding=rounding,
        stream=stream,
    )


@overload
def qk_norm_rope(
    q: mx.array,
    k: mx.array,
    q_weight: mx.array | None,
    k_weight: mx.array | None,
    eps: float = 1e-5,
    dims: int | None = None,
    *,
    layout: Layout,
    offset: int | mx.array,
    traditional: bool = False,
    base: float | None = BASE,
    scale: float = 1.0,
    freqs: mx.array | None = None,
    v: None = None,
    q_multiplier: float = 1.0,
    weight_offset: float = 0.0,
    rope_first: bool = False,
    output_layout: Layout = "BHLD",
    rounding: Rounding | None = None,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]: ...
@overload
def qk_norm_rope(
    q: mx.array,
    k: mx.array,
    q_weight: mx.array | None,
    k_weight: mx.array | None,
    eps: float = 1e-5,
    dims: int | None = None,
    *,
    layout: Layout,
    offset: int | mx.array,
    traditional: bool = False,
    base: float | None = BASE,
    scale: float = 1.0,
    freqs: mx.array | None = None,
    v: mx.array,
    q_multiplier: float = 1.0,
    weight_offset: float = 0.0,
    rope_first: bool = False,
    output_layout: Layout = "BHLD",
    rounding: Rounding | None = None,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array, mx.array]: ...
@overload
def qk_norm_rope(
    q: mx.array,
    k: mx.array,
    q_weight: mx.array | None,
    k_weight: mx.array | None,
    eps: float = 1e-5,
    dims: int | None = None,
    *,
    layout: Layout,
    offset: int | mx.array,
    traditional: bool = False,
    base: float | None = BASE,
    scale: float = 1.0,
    freqs: mx.array | None = None,
    v: mx.array | None = None,
    q_multiplier: float = 1.0,
    weight_offset: float = 0.0,
    rope_first: bool = False,
    output_layout: Layout = "BHLD",
    rounding: Rounding | None = None,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array] | tuple[mx.array, mx.array, mx.array]: ...
def qk_norm_rope(
    q,
    k,
    q_weight,
    k_weight,
    eps=1e-5,
    dims=None,
    *,
    layout,
    offset,
    traditional=False,
    base=BASE,
    scale=1.0,
    freqs=None,
    v=None,
    q_multiplier=1.0,
    weight_offset=0.0,
    rope_first=False,
    output_layout="BHLD",
    rounding=None,
    stream=None,
):
    """:func:`norm_rope` of queries and of keys, in one launch.

    The numbers of heads may differ, as in grouped-query attention. All options but these are those
    of :func:`norm_rope`.

    Args:
        q (array): Queries, float32, float16 or bfloat16, of the ``layout``.
        k (array): Keys, of the same dtype and layout.
        q_weight (array, optional): Of shape ``[D]`` or ``[q_heads, D]``, of any of the three
          dtypes.
        k_weight (array, optional): Likewise for ``k``. Both weights must be given, or neither.
        v (array, optional): Values of the same dtype and layout: normalized without a weight and
          not rotated. Default: ``None``.
        q_multiplier (float): Multiplies the norm of ``q``; rounding early it is rounded to the
          dtype, and the product, too. Default: ``1.0``.

    Returns:
        tuple(array, array) or tuple(array, array, array): The results of ``q``, ``k`` and, if it is
        given, ``v``, of their dtype.

    Raises:
        ValueError: As :func:`norm_rope`, or if one weight is given without the other.
    """
    outputs = _ext.qk_norm_rope(
        q=q,
        k=k,
        q_weight=q_weight,
        k_weight=k_weight,
        eps=eps,
        dims=dims,
        layout=layout,
        traditional=traditional,
        base=_base(base, freqs),
        scale=scale,
        offset=offset,
        freqs=freqs,
        v=v,
        q_multiplier=q_multiplier,
        weight_offset=weight_offset,
        rope_first=rope_first,
        output_layout=output_layout,
        rounding=rounding,
        stream=stream,
    )
    return tuple(outputs)


def _base(base: float | None, freqs: mx.array | None) -> float | None:
    """The default is none beside ``freqs``."""
    return None if freqs is not None and base == BASE else base
