"""Norms of groups of channels, of samples and of batches."""

from __future__ import annotations

from typing import Literal, overload

import mlx.core as mx

from .. import _ext


def group_norm(
    x: mx.array,
    num_groups: int,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    pytorch_compatible: bool = False,
    activation: Literal["silu", "gelu"] | None = None,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""Group normalization: over all positions of a group of channels of a sample.

    .. math::

        y = a\left(\frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} w + b\right)

    where :math:`a` is the ``activation``. Everything is computed in float32 and rounded once; a
    large mean costs no precision. The result of a sample does not depend on the others.

    Args:
        x (array): Input of shape ``[N, ..., C]``, channels last, float32, float16 or bfloat16.
        num_groups (int): Into how many groups the channels are split. It divides ``C``.
        weight (array, optional): Of shape ``[C]`` and any of the three dtypes. Default: ``None``,
          the result is not scaled.
        bias (array, optional): Likewise. Default: ``None``, nothing is added.
        eps (float): Added to the variance. Not negative. Default: ``1e-5``.
        pytorch_compatible (bool): Whether a group is ``C / num_groups`` channels that adjoin, as in
          PyTorch, else those ``num_groups`` apart, as :class:`mlx.nn.GroupNorm` has them by
          default. Default: ``False``.
        activation (str, optional): ``"silu"`` or ``"gelu"``, of the result. Default: ``None``.
        dtype (Dtype, optional): The output's, one of the three. Default: that of ``x``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The normalized input, of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above, or ``x`` has less than two axes.

    Example:
        >>> x = mx.array([[[1.0, 2.0, 30.0, 40.0], [3.0, 4.0, 50.0, 60.0]]])
        >>> mlx_norms.group_norm(x, 2, pytorch_compatible=True)
        array([[[-1.34164, -0.447212, -1.34164, -0.447214],
                [0.447212, 1.34164, 0.447214, 1.34164]]], dtype=float32)
    """
    return _ext.group_norm(
        x=x,
        num_groups=num_groups,
        weight=weight,
        bias=bias,
        eps=eps,
        pytorch_compatible=pytorch_compatible,
        activation=activation,
        dtype=dtype,
        stream=stream,
    )


def instance_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    """Instance normalization: over all positions of a channel of a sample.

    It is :func:`group_norm` with groups of one channel.

    Args:
        x (array): Input of shape ``[N, ..., C]`` with at least one axis of positions, float32,
          float16 or bfloat16.
        weight (array, optional): Of shape ``[C]`` and any of the three dtypes. Default: ``None``,
          the result is not scaled.
        bias (array, optional): Likewise. Default: ``None``, nothing is added.
        eps (float): Added to the variance. Not negative. Default: ``1e-5``.
        dtype (Dtype, optional): The output's, one of the three. Default: that of ``x``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The normalized input, of ``x``'s shape.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above.
    """
    return _ext.instance_norm(x=x, weight=weight, bias=bias, eps=eps, dtype=dtype, stream=stream)


@overload
def batch_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    mean: None = None,
    var: None = None,
    training: bool = False,
    momentum: float = 0.1,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array: ...
@overload
def batch_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    mean: mx.array,
    var: mx.array,
    training: Literal[False] = False,
    momentum: float = 0.1,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array: ...
@overload
def batch_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    mean: mx.array,
    var: mx.array,
    training: Literal[True],
    momentum: float = 0.1,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array, mx.array]: ...
@overload
def batch_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    eps: float = 1e-5,
    *,
    mean: mx.array | None = None,
    var: mx.array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    dtype: mx.Dtype | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array | tuple[mx.array, mx.array, mx.array]: ...
def batch_norm(
    x,
    weight=None,
    bias=None,
    eps=1e-5,
    *,
    mean=None,
    var=None,
    training=False,
    momentum=0.1,
    dtype=None,
    stream=None,
):
    r"""Batch normalization: over all samples and positions of a channel.

    In training ``x`` is normalized by its own mean and (biased) variance, through which gradients
    flow, and the running statistics are updated as by :class:`mlx.nn.BatchNorm`, with the unbiased
    variance:

    .. math::

        m' = (1 - \mu)\,m + \mu\,E[x], \quad
        v' = (1 - \mu)\,v + \mu\,\frac{n}{n - 1} Var[x]

    where :math:`\mu` is the ``momentum`` and :math:`n` the number of values per channel. Else ``x``
    is normalized by the running statistics or, if there are none, by its own. Everything is
    computed in float32, and each result rounded once.

    Args:
        x (array): Input of shape ``[N, ..., C]``, float32, float16 or bfloat16.
        weight (array, optional): Of shape ``[C]`` and any of the three dtypes. Default: ``None``,
          the result is not scaled.
        bias (array, optional): Likewise. Default: ``None``, nothing is added.
        eps (float): Added to the variance. Not negative. Default: ``1e-5``.
        mean, var (array, optional): The running statistics, likewise; both or neither. Default:
          ``None``, none are kept, as with ``track_running_stats=False``.
        training (bool): Whether the batch's statistics are used, and update the running ones.
          Default: ``False``.
        momentum (float): How much of the new statistics is the batch's. Default: ``0.1``.
        dtype (Dtype, optional): The output's, one of the three. Default: that of ``x``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array or tuple(array, array, array): The normalized input, of ``x``'s shape; in training
        with running statistics, it and their new values, in the dtypes to which each and ``x``
        promote.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above, ``x`` has less than two axes or,
          in training, one value per channel, or only one of ``mean`` and ``var`` is given.
    """
    outputs = _ext.batch_norm(
        x=x,
        weight=weight,
        bias=bias,
        eps=eps,
        mean=mean,
        var=var,
        training=training,
        momentum=momentum,
        dtype=dtype,
        stream=stream,
    )
    return tuple(outputs) if len(outputs) > 1 else outputs[0]
