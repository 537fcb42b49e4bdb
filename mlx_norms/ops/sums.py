"""Norms of sums with a residual."""

from __future__ import annotations

import mlx.core as mx

from .. import _ext
from .types import Rounding, Term


def add_rms_norm(
    x: mx.array,
    residual: mx.array,
    weight: mx.array | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    clamp: bool = False,
    rounding: Rounding | None = None,
    residual2: mx.array | None = None,
    factor: Term | None = None,
    scale: Term | None = None,
    shift: Term | None = None,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]:
    r"""Residual add and RMS norm: the norm of ``x + residual``, and the sum.

    .. math::

        s = r + f x + r_2, \quad y = \frac{s}{\sqrt{E[s^2] + \epsilon}} (w + w_0)

    The sum has the dtype that its terms promote to, and is rounded to it before the norm; the
    norm has ``x``'s dtype. So a stream of residuals may be float32 beside layers in 16 bits.
    Rounding early the bits are those of MLX's sums, of :func:`rms_norm` with ``dtype=x.dtype`` and
    of what follows it.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        residual (array): Added to ``x``; of its shape and any of the three dtypes.
        weight (array, optional): Of shape ``[D]``, or ``[H, D]`` for heads ``[..., H, D]``, of any
          of the three dtypes. Default: ``None``, the result is not scaled.
        eps (float): Added to the mean square. Not negative. Default: ``1e-5``.
        weight_offset (float): Added to ``weight``. Default: ``0.0``.
        clamp (bool): Saturate a float16 sum at ±65504 where it would be infinite; NaN stays NaN.
          There the derivative is zero. Sums of other dtypes are as they are. Default: ``False``.
        rounding (str, optional): ``"early"`` or ``"late"``, as in :func:`rms_norm`.
        residual2 (array, optional): Added to the sum of ``x`` and ``residual``, which is rounded to
          its own dtype before; of their shape, and not with ``clamp``. Of ``h + (a + b)``, as of a
          layer of experts and a shared one, it is ``h``. Default: ``None``.
        factor (array or float, optional): ``x`` is multiplied by it before it is added: a number,
          in ``x``'s dtype, or an array that broadcasts to ``x`` and has its last axis, as a layer
          scale ``[D]``. Rounding early, the product is rounded. Default: ``None``.
        scale, shift (array or float, optional): As in :func:`rms_norm`.
        dtype (Dtype, optional): The norm's, one of the three. Default: that of ``x``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        tuple(array, array): The normalized sum and the sum, both of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above.

    Example:
        >>> x = mx.array([60000.0, 3.0], mx.float16)
        >>> mlx_norms.add_rms_norm(x, x)[1]
        array([inf, 6], dtype=float16)
        >>> mlx_norms.add_rms_norm(x, x, clamp=True)
        (array([1.41406, 0.00012958], dtype=float16), array([65504, 6], dtype=float16))
        >>> mlx_norms.add_rms_norm(x, x.astype(mx.float32))
        (array([1.41406, 7.06911e-05], dtype=float16), array([120000, 6], dtype=float32))
    """
    return _ext.add_rms_norm(
        x=x,
        residual=residual,
        residual2=residual2,
        weight=weight,
        eps=eps,
        weight_offset=weight_offset,
        clamp=clamp,
        rounding=rounding,
        factor=factor,
        scale=scale,
        shift=shift,
        dtype=dtype,
        stream=stream,
    )


def add_layer_norm(
    x: mx.array,
    residual: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    clamp: bool = False,
    rounding: Rounding | None = None,
    residual2: mx.array | None = None,
    factor: Term | None = None,
    scale: Term | None = None,
    shift: Term | None = None,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]:
    r"""Residual add and layer norm: the norm of ``x + residual``, and the sum.

    .. math::

        s = r + f x + r_2, \quad
        y = \frac{s - E[s]}{\sqrt{Var[s] + \epsilon}} (w + w_0) + b

    The sum has the dtype that its terms promote to, and the norm that of ``x``:
    :func:`add_rms_norm` says more.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        residual (array): Added to ``x``; of its shape and any of the three dtypes.
        weight (array, optional): Of shape ``[D]``, or ``[H, D]`` for heads ``[..., H, D]``, of any
          of the three dtypes. Default: ``None``, the result is not scaled.
        bias (array, optional): Added to the result; of either shape. Default: ``None``.
        eps (float): Added to the variance. Not negative. Default: ``1e-5``.
        weight_offset (float): Added to ``weight``. Default: ``0.0``.
        clamp (bool): Saturate a float16 sum, as in :func:`add_rms_norm`. Default: ``False``.
        rounding (str, optional): ``"early"`` or ``"late"``, as in :func:`rms_norm`.
        residual2 (array, optional): As in :func:`add_rms_norm`. Default: ``None``.
        factor (array or float, optional): As in :func:`add_rms_norm`. Default: ``None``.
        scale, shift (array or float, optional): As in :func:`rms_norm`.
        dtype (Dtype, optional): The norm's, one of the three. Default: that of ``x``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        tuple(array, array): The normalized sum and the sum, both of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above.
    """
    return _ext.add_layer_norm(
        x=x,
        residual=residual,
        residual2=residual2,
        weight=weight,
        bias=bias,
        eps=eps,
        weight_offset=weight_offset,
        clamp=clamp,
        rounding=rounding,
        factor=factor,
        scale=scale,
        shift=shift,
        dtype=dtype,
        stream=stream,
    )


def norm_add_norm(
    x: mx.array,
    residual: mx.array,
    post_weight: mx.array | None = None,
    weight: mx.array | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    clamp: bool = False,
    rounding: Rounding | None = None,
    factor: Term | None = None,
    alpha: float = 1.0,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]:
    r"""RMS norm, residual add and RMS norm: after a layer, the sum, and before the next layer.

    .. math::

        n = \frac{x}{\sqrt{E[x^2] + \epsilon}} (w_p + w_0), \quad
        h = \alpha r + f n, \quad
        y = \frac{h}{\sqrt{E[h^2] + \epsilon}} (w + w_0)

    where :math:`w_0` is the ``weight_offset``. Rounding early, the result is bit-identical to
    ``h = residual + rms_norm(x, post_weight)`` and ``rms_norm(h, weight, dtype=x.dtype)``, and with
    a ``factor`` to :func:`add_rms_norm` of ``n``; late, only ``h`` and ``y`` are rounded. One
    launch, but two on a GPU for a 16-bit ``x`` and a sum in float32, rounded early. Gemma 2 and 3,
    OLMo 2 and GLM-4 have such norms.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        residual (array): Added to the norm of ``x``; of its shape and any of the three dtypes. The
          sum's dtype is the one both promote to.
        post_weight (array, optional): The weight of ``x``'s norm, of shape ``[D]`` and any of the
          three dtypes. Default: ``None``, it is not scaled.
        weight (array, optional): That of the sum's norm, likewise.
        eps (float): Added to both mean squares. Not negative. Default: ``1e-5``.
        weight_offset (float): Added to both weights in float32. Default: ``0.0``.
        clamp (bool): As in :func:`add_rms_norm`. Default: ``False``.
        rounding (str, optional): ``"early"`` or ``"late"``, as in :func:`rms_norm`, of both norms.
        factor (array or float, optional): Multiplies the norm of ``x`` before it is added, as
          ``x`` of :func:`add_rms_norm`. Its gradients take several launches. Default: ``None``.
        alpha (float): Multiplies ``residual``, in its dtype. Rounding early, the product is rounded
          to that. Default: ``1.0``.
        dtype (Dtype, optional): The second norm's, one of the three. Default: that of ``x``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        tuple(array, array): The normalized sum and the sum, both of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above, or there is a ``weight_offset``
          and one of the weights is missing.

    Example:
        >>> x, residual = mx.array([3.0, 4.0]), mx.array([1.0, 1.0])
        >>> mlx_norms.norm_add_norm(x, residual, mx.array([2.0, 0.5]))
        (array([1.22306, 0.710008], dtype=float32), array([2.69706, 1.56569], dtype=float32))
    """
    return _ext.norm_add_norm(
        x=x,
        residual=residual,
        post_weight=post_weight,
        weight=weight,
        eps=eps,
        weight_offset=weight_offset,
        clamp=clamp,
        rounding=rounding,
        factor=factor,
        alpha=alpha,
        dtype=dtype,
        stream=stream,
    )
