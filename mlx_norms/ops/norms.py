"""Norms of rows, of heads and of other axes."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from .. import _ext
from .types import Activation, Rounding, Term


def rms_norm(
    x: mx.array,
    weight: mx.array | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    input_weight: mx.array | None = None,
    rounding: Rounding | None = None,
    scale: Term | None = None,
    shift: Term | None = None,
    gate: mx.array | None = None,
    activation: Activation | None = None,
    norm_before_gate: bool = True,
    num_groups: int = 1,
    dtype: mx.Dtype | None = None,
    group: mx.distributed.Group | None = None,
    axis: int = -1,
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""Root Mean Square normalization (RMS norm) over the last axis, or over ``axis``.

    .. math::

        y = \frac{x}{\sqrt{E[x^2] + \epsilon}} (w + w_0)

    in float32, where :math:`w_0` is the ``weight_offset``. The positional arguments are those of
    :func:`mlx.core.fast.rms_norm`. docs/ops.md says which options exclude each other.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        weight (array, optional): Of shape ``[D]``, or ``[H, D]`` for heads ``[..., H, D]``, of any
          of the three dtypes. Default: ``None``, the result is not scaled.
        eps (float): Added to the mean square. Not negative. Default: ``1e-5``.
        weight_offset (float): Added to ``weight``; ``1.0`` for Gemma. Default: ``0.0``.
        input_weight (array, optional): ``x`` is multiplied by it before it is normalized, and the
          product rounded, early, as in MLX. It broadcasts to ``x`` and has its last axis, as
          ``[D]``. Default: ``None``.
        rounding (str, optional): When the normalized value is rounded to the output's dtype:
          ``"early"``, before the weight and after each further step, with the bits of these steps
          in MLX; ``"late"``, at the end. Default: ``"early"``, or ``"late"`` with an offset.
        scale, shift (array or float, optional): The result is ``y * (1 + scale) + shift``. An array
          broadcasts to ``x`` and has its last axis: ``[B, 1, D]`` is one for each sample.
        gate (array, optional): Of ``x``'s shape. The result is ``y * activation(gate)`` or, without
          ``norm_before_gate``, the norm of ``x * activation(gate)``.
        activation (str, optional): ``"silu"``, ``"sigmoid"``, ``"gelu"`` or ``"relu2"``, of the
          gate or, without one, of the result. Default: ``None``.
        norm_before_gate (bool): Whether the gate multiplies the result. Default: ``True``.
        num_groups (int): Equal parts of a row that are normalized by themselves, as in Mamba-2.
          A shapeless compiled function keeps this ``D``. Default: ``1``.
        dtype (Dtype, optional): The output's, one of the three. Default: that of ``x``.
        group (Group, optional): The members that hold equal parts of each row, and of ``weight``:
          each call and gradient adds up one float32 scalar a row over them. All must make the same
          calls in the same order, or they deadlock. Gradients are those of the sum of all losses.
        axis (int): The axis that is normalized: ``1`` for ``[B, C, H, W]``, whose weight is
          ``[C]``. The result is row-contiguous. Default: ``-1``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The normalized input, of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above, or options exclude each other.

    Example:
        >>> x, w = mx.array([1.0, 2.0, 3.0], mx.bfloat16), mx.array([0.3, 0.3, 0.3])
        >>> mlx_norms.rms_norm(x, w)
        array([0.138672, 0.277344, 0.417969], dtype=bfloat16)
        >>> mlx_norms.rms_norm(x, w, rounding="late")
        array([0.138672, 0.277344, 0.416016], dtype=bfloat16)
    """
    return _ext.rms_norm(
        x=x,
        weight=weight,
        eps=eps,
        weight_offset=weight_offset,
        input_weight=input_weight,
        rounding=rounding,
        scale=scale,
        shift=shift,
        gate=gate,
        activation=activation,
        norm_before_gate=norm_before_gate,
        num_groups=num_groups,
        dtype=dtype,
        group=group,
        axis=axis,
        stream=stream,
    )


def layer_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    rounding: Rounding | None = None,
    scale: Term | None = None,
    shift: Term | None = None,
    activation: Activation | None = None,
    dtype: mx.Dtype | None = None,
    axis: int = -1,
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""Layer normalization over the last axis, or over ``axis``.

    .. math::

        y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} (w + w_0) + b

    in float32, where :math:`w_0` is the ``weight_offset``; the mean is corrected for its own
    rounding, so that a large one costs no precision. The positional arguments are those of
    :func:`mlx.core.fast.layer_norm`. docs/ops.md says which options exclude each other.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        weight (array, optional): Of shape ``[D]``, or ``[H, D]`` for heads ``[..., H, D]``, of any
          of the three dtypes. Default: ``None``, the result is not scaled.
        bias (array, optional): Added to the result; of either shape. Default: ``None``.
        eps (float): Added to the variance. Not negative. Default: ``1e-5``.
        weight_offset (float): Added to ``weight``. Default: ``0.0``.
        rounding (str, optional): ``"early"`` or ``"late"``, as in :func:`rms_norm`.
        scale, shift (array or float, optional): The result is ``y * (1 + scale) + shift``, as in
          :func:`rms_norm`: an adaptive layer norm (adaLN).
        activation (str, optional): Of the result, as in :func:`rms_norm`. Default: ``None``.
        dtype (Dtype, optional): The output's, one of the three. Default: that of ``x``.
        axis (int): The axis that is normalized: ``1`` for ``[B, C, H, W]``, whose weight and bias
          are ``[C]``. The result is row-contiguous. Default: ``-1``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The normalized input, of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above, or options exclude each other.

    Example:
        >>> x = mx.array([1.0, 2.0, 4.0], mx.float16)
        >>> w, b = mx.array([3.0, 3.0, 3.0]), mx.array([0.1, 0.1, 0.1])
        >>> mlx_norms.layer_norm(x, w, b)
        array([-3.10742, -0.702148, 4.10938], dtype=float16)
        >>> mlx_norms.layer_norm(x, w, b, dtype=mx.float32)
        array([-3.10713, -0.701781, 4.10891], dtype=float32)
        >>> scale = mx.array([[0.0], [1.0]]) + mx.zeros((2, 3))
        >>> mlx_norms.layer_norm(mx.stack([x, x]), scale=scale)
        array([[-1.06934, -0.267334, 1.33594],
               [-2.13867, -0.534668, 2.67188]], dtype=float16)
    """
    return _ext.layer_norm(
        x=x,
        weight=weight,
        bias=bias,
        eps=eps,
        weight_offset=weight_offset,
        rounding=rounding,
        scale=scale,
        shift=shift,
        activation=activation,
        dtype=dtype,
        axis=axis,
        stream=stream,
    )


def l2_norm(
    x: mx.array,
    eps: float = 1e-6,
    *,
    eps_inside: bool = False,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""Division by the Euclidean norm (L2 norm) over the last axis.

    .. math::

        y = \frac{x}{\max(\lVert x \rVert, \epsilon)}
        \quad \text{or} \quad
        y = \frac{x}{\sqrt{\sum x^2 + \epsilon}}

    The sum of squares and the square root are computed in float32. Where :math:`\epsilon` stands
    for the norm, the gradient is the cotangent over :math:`\epsilon`, also of a row of zeros.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        eps (float): The least that is divided by or, with ``eps_inside``, added to the sum of
          squares. Not negative. Default: ``1e-6``.
        eps_inside (bool): Which of the two formulas: the second, as in linear attention, if true.
          Default: ``False``.
        dtype (Dtype, optional): The output's, one of the three. Default: that of ``x``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The normalized input, of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above.

    Example:
        >>> mlx_norms.l2_norm(mx.array([3.0, 4.0]))
        array([0.6, 0.8], dtype=float32)
    """
    return _ext.l2_norm(x=x, eps=eps, eps_inside=eps_inside, dtype=dtype, stream=stream)


def rms_norms(
    xs: Sequence[mx.array],
    weights: Sequence[mx.array | None] | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    multipliers: Sequence[float] | None = None,
    rounding: Rounding | None = None,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> list[mx.array]:
    """:func:`rms_norm` of one to four arrays, in one launch if they allow it.

    Each result has the bits of :func:`rms_norm`, whatever is beside it. Arrays of any shapes,
    dtypes and strides may be given, as queries and keys: parts of one array, too, which are read in
    place.

    On a GPU, arrays whose threads read vectors of one size share a launch: 16-bit rows of multiples
    of 8 elements; 16-bit rows of other multiples of 4 and float32 rows of multiples of 4; other
    rows. Others have their own launches, as have rows of different lengths, one of which is too
    long to be held by its threads (more than 16384 elements on Metal, or 32768 on CUDA), and on
    Metal some with one of more than 4096.

    Args:
        xs (sequence of arrays): Inputs of shapes ``[..., D]``, float32, float16 or bfloat16.
        weights (sequence, optional): For each input a weight of shape ``[D]``, or ``[H, D]`` for
          heads ``[..., H, D]``, of any of the three dtypes, or ``None``. Default: ``None``, no
          result is scaled.
        eps (float): Added to the mean squares. Not negative. Default: ``1e-5``.
        weight_offset (float): Added to each weight in float32. Default: ``0.0``.
        multipliers (sequence of floats, optional): For each input a number that multiplies its
          result; rounding early it is rounded to the result's dtype, and the product, too, as by
          MLX. Default: ``None``.
        rounding (str, optional): ``"early"`` or ``"late"``, as in :func:`rms_norm`, of all.
        dtype (Dtype, optional): The outputs', one of the three. Default: that of each input.
        stream (StreamOrDevice): Stream or device.

    Returns:
        list(array): The normalized inputs, in order, of their shapes.

    Raises:
        ValueError: If there are no arrays or more than four, ``weights`` or ``multipliers`` are not
          as many, or a dtype, a shape or a value is not as above.

    Example:
        >>> x = mx.array([1.0, 2.0, 3.0, 4.0])
        >>> mlx_norms.rms_norms([x, x[:2]], [None, mx.ones(2)], multipliers=[1, 2])
        [array([0.365148, 0.730296, 1.09544, 1.46059], dtype=float32),
         array([1.26491, 2.52982], dtype=float32)]
    """
    return _ext.rms_norms(
        xs=xs,
        weights=weights,
        multipliers=multipliers,
        eps=eps,
        weight_offset=weight_offset,
        rounding=rounding,
        dtype=dtype,
        stream=stream,
    )


def l2_norms(
    xs: Sequence[mx.array],
    multipliers: Sequence[float] | None = None,
    eps: float = 1e-6,
    *,
    eps_inside: bool = False,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> list[mx.array]:
    """:func:`l2_norm` of one to four arrays, in one launch if they allow it.

    Each result has the bits of :func:`l2_norm`, whatever is beside it, and :func:`rms_norms` says
    which share a launch.

    Args:
        xs (sequence of arrays): Inputs of shapes ``[..., D]``, float32, float16 or bfloat16.
        multipliers (sequence of floats, optional): For each input a number that multiplies its
          result, both of which are rounded to the result's dtype, as by MLX. Default: ``None``.
        eps (float): As in :func:`l2_norm`. Default: ``1e-6``.
        eps_inside (bool): As in :func:`l2_norm`. Default: ``False``.
        dtype (Dtype, optional): The outputs', one of the three. Default: that of each input.
        stream (StreamOrDevice): Stream or device.

    Returns:
        list(array): The normalized inputs, in order, of their shapes.

    Raises:
        ValueError: If there are no arrays or more than four, ``multipliers`` are not as many, or a
          dtype, a shape or a value is not as above.
    """
    return _ext.l2_norms(
        xs=xs,
        multipliers=multipliers,
        eps=eps,
        eps_inside=eps_inside,
        dtype=dtype,
        stream=stream,
    )
