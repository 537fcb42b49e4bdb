"""Products of matrices, alone and of norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, overload

import mlx.core as mx

from .. import _ext

# An array, or the three arrays of mx.quantize.
Weight: TypeAlias = mx.array | Sequence[mx.array]


@overload
def rms_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    weights: mx.array,
    eps: float = 1e-5,
    *,
    biases: mx.array | None = None,
    residual: None = None,
    gated: bool = False,
    weight_offset: float = 0.0,
    stream: mx.StreamOrDevice = None,
) -> mx.array: ...
@overload
def rms_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    weights: mx.array,
    eps: float = 1e-5,
    *,
    biases: mx.array | None = None,
    residual: mx.array,
    gated: bool = False,
    weight_offset: float = 0.0,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]: ...
@overload
def rms_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    weights: Sequence[Weight],
    eps: float = 1e-5,
    *,
    biases: Sequence[mx.array | None] | None = None,
    residual: None = None,
    gated: Literal[True],
    weight_offset: float = 0.0,
    stream: mx.StreamOrDevice = None,
) -> mx.array: ...
@overload
def rms_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    weights: Sequence[Weight],
    eps: float = 1e-5,
    *,
    biases: Sequence[mx.array | None] | None = None,
    residual: mx.array,
    gated: Literal[True],
    weight_offset: float = 0.0,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]: ...
@overload
def rms_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    weights: mx.array | Sequence[Weight],
    eps: float = 1e-5,
    *,
    biases: mx.array | Sequence[mx.array | None] | None = None,
    residual: mx.array | None = None,
    gated: bool = False,
    weight_offset: float = 0.0,
    stream: mx.StreamOrDevice = None,
) -> mx.array | list[mx.array] | tuple[mx.array | list[mx.array], mx.array]: ...
def rms_norm_linear(
    x,
    norm_weight,
    weights,
    eps=1e-5,
    *,
    biases=None,
    residual=None,
    gated=False,
    weight_offset=0.0,
    stream=None,
):
    r"""RMS norm over the last axis, and linear projections of the result.

    .. math::

        n = \frac{x}{\sqrt{E[x^2] + \epsilon}} (w + w_0), \quad
        y_i = n W_i^\top + b_i

    where :math:`w_0` is the ``weight_offset``. With a ``residual``, :math:`x` is replaced by
    :math:`x + r`, rounded to its dtype. With ``gated``, the result is
    :math:`y_1 \sigma(y_1) \, y_2`, which is ``mlx.nn.silu(y_1) * y_2``.

    On a GPU, up to 8 rows are computed in one launch for all weights (on Metal from Apple's
    generation 15 on up to 4, on CUDA of dense ones 4). :math:`1 / \sqrt{E[x^2] + \epsilon}` is one
    factor per row, so the kernel sums :math:`x^2` beside the dot products and needs no separate
    launch for the norm, as in `FlashNorm <https://arxiv.org/abs/2407.09577>`_. More rows, the CPU,
    gradients and anything that the kernel does not support run as two steps: :func:`rms_norm` with
    ``rounding="late"``, then MLX's matmuls, called as the layers of ``mlx.nn`` call them.

    In one launch everything is float32 up to the result: the normalized row is never rounded. In
    two steps it is rounded to the dtype of ``x`` or of the sum, and a projection is rounded before
    its bias or gate where MLX does so. In 16 bits the two differ by these roundings.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        norm_weight (array, optional): The norm's weight of shape ``[D]``, of any of the three
          dtypes. If ``None`` the norm does not scale.
        weights (array or list): A weight of shape ``[N, D]``, as :class:`mlx.nn.Linear` stores it,
          or a list of 1 to 4 of them, which may differ in ``N``, in dtype and in kind. Each is an
          array of any of the three dtypes, or the three arrays that :func:`mlx.core.quantize`
          returns (affine; 4 or 8 bits, groups of 32, 64 or 128, inferred from the shapes).
        eps (float): Added to the mean square. Not negative. Default: ``1e-5``.
        biases (array or list, optional): Added to the projection, of shape ``[N]`` and any of the
          three dtypes; for a list of weights, a list of an array or ``None`` per weight. If
          ``None`` nothing is added.
        residual (array, optional): Added to ``x`` before the norm; of the same shape and any of the
          three dtypes. The sum is also returned.
        gated (bool): Whether ``weights`` are a pair of one shape, the gate and up projections of a
          gated layer. Default: ``False``.
        weight_offset (float): Added to ``norm_weight`` in float32. Default: ``0.0``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array, list(array) or tuple: An array of shape ``[..., N]`` for one weight or a ``gated``
        pair; for a list of weights, a list of one array per weight. With a ``residual``, a tuple of
        that and ``x + residual``. The dtype is the one that the dtypes of ``x`` (or of the sum),
        the weight and the bias promote to.

    Raises:
        ValueError: If a dtype, a shape or a value is not as above, there are not as many ``biases``
          as weights, ``gated`` weights are not two of one shape, or there is a ``weight_offset``
          and no ``norm_weight``.

    Example:
        >>> x, w = mx.array([[3.0, 4.0]]), mx.ones(2)
        >>> W = mx.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> mlx_norms.rms_norm_linear(x, w, W)
        array([[0.848528, 1.13137, 1.9799]], dtype=float32)
        >>> y, h = mlx_norms.rms_norm_linear(x, w, [W, W[:1]], residual=x)
        >>> y[1], h
        (array([[0.848528]], dtype=float32), array([[6, 8]], dtype=float32))
    """
    one, weights, biases = _lists(weights, biases, "rms_norm_linear")
    outputs = _ext.rms_norm_linear(
        x=x,
        norm_weight=norm_weight,
        weights=weights,
        eps=eps,
        biases=biases,
        residual=residual,
        gated=gated,
        weight_offset=weight_offset,
        stream=stream,
    )
    total = None if residual is None else outputs.pop()
    y = outputs[0] if one or gated else outputs
    return y if total is None else (y, total)


@overload
def layer_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    norm_bias: mx.array | None,
    weights: mx.array,
    eps: float = 1e-5,
    *,
    biases: mx.array | None = None,
    residual: None = None,
    gated: bool = False,
    stream: mx.StreamOrDevice = None,
) -> mx.array: ...
@overload
def layer_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    norm_bias: mx.array | None,
    weights: mx.array,
    eps: float = 1e-5,
    *,
    biases: mx.array | None = None,
    residual: mx.array,
    gated: bool = False,
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]: ...
@overload
def layer_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    norm_bias: mx.array | None,
    weights: Sequence[Weight],
    eps: float = 1e-5,
    *,
    biases: Sequence[mx.array | None] | None = None,
    residual: None = None,
    gated: Literal[True],
    stream: mx.StreamOrDevice = None,
) -> mx.array: ...
@overload
def layer_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    norm_bias: mx.array | None,
    weights: Sequence[Weight],
    eps: float = 1e-5,
    *,
    biases: Sequence[mx.array | None] | None = None,
    residual: mx.array,
    gated: Literal[True],
    stream: mx.StreamOrDevice = None,
) -> tuple[mx.array, mx.array]: ...
@overload
def layer_norm_linear(
    x: mx.array,
    norm_weight: mx.array | None,
    norm_bias: mx.array | None,
    weights: mx.array | Sequence[Weight],
    eps: float = 1e-5,
    *,
    biases: mx.array | Sequence[mx.array | None] | None = None,
    residual: mx.array | None = None,
    gated: bool = False,
    stream: mx.StreamOrDevice = None,
) -> mx.array | list[mx.array] | tuple[mx.array | list[mx.array], mx.array]: ...
def layer_norm_linear(
    x,
    norm_weight,
    norm_bias,
    weights,
    eps=1e-5,
    *,
    biases=None,
    residual=None,
    gated=False,
    stream=None,
):
    r"""Layer norm over the last axis, and linear projections of the result.

    .. math::

        n = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} w + b, \quad
        y_i = n W_i^\top + b_i

    The number of launches, the rounding and the other arguments are those of
    :func:`rms_norm_linear`; quantized weights are two steps on Metal.

    Args:
        x (array): Input of shape ``[..., D]``, float32, float16 or bfloat16.
        norm_weight (array, optional): The norm's weight of shape ``[D]``, of any of the three
          dtypes. If ``None`` the norm does not scale.
        norm_bias (array, optional): The norm's bias, likewise. If ``None`` nothing is added.
        weights (array or list): As in :func:`rms_norm_linear`.
        eps (float): Added to the variance. Not negative. Default: ``1e-5``.
        biases (array or list, optional): As in :func:`rms_norm_linear`.
        residual (array, optional): As in :func:`rms_norm_linear`.
        gated (bool): As in :func:`rms_norm_linear`. Default: ``False``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array, list(array) or tuple: As :func:`rms_norm_linear`.

    Raises:
        ValueError: As :func:`rms_norm_linear`.

    Example:
        >>> x, w, b = mx.array([[1.0, 3.0]]), mx.ones(2), mx.zeros(2)
        >>> W = mx.array([[1.0, 0.0], [0.0, 2.0]])
        >>> mlx_norms.layer_norm_linear(x, w, b, W, biases=w / 2)
        array([[-0.499995, 2.49999]], dtype=float32)
    """
    one, weights, biases = _lists(weights, biases, "layer_norm_linear")
    outputs = _ext.layer_norm_linear(
        x=x,
        norm_weight=norm_weight,
        norm_bias=norm_bias,
        weights=weights,
        eps=eps,
        biases=biases,
        residual=residual,
        gated=gated,
        stream=stream,
    )
    total = None if residual is None else outputs.pop()
    y = outputs[0] if one or gated else outputs
    return y if total is None else (y, total)


def _lists(weights, biases, op: str):
    """Whether there is one weight, and a list of arrays and a bias for each."""
    if isinstance(weights, mx.array):
        one, lists = True, [[weights]]
    elif not isinstance(weights, Sequence):
        return True, weights, biases  # which the extension refuses
    elif _is_quantized(weights):
        one, lists = True, [weights]
    else:
        one, lists = False, [[w] if isinstance(w, mx.array) else w for w in weights]
    if biases is None:
        return one, lists, None
    if one != isinstance(biases, mx.array):
        wanted = "mx.array" if one else "a list"
        given = f"as weights is one, but is {type(biases).__name__}"
        raise TypeError(f"[{op}] biases must be {wanted} or None, {given}.")
    return one, lists, [biases] if one else biases


def _is_quantized(weights) -> bool:
    """What mx.quantize returns is a list, whose uint32 array tells it from one of weights."""
    is_three = len(weights) == 3 and all(isinstance(w, mx.array) for w in weights)
    return is_three and weights[0].dtype == mx.uint32


def quantized_matmul(
    x: mx.array,
    w: mx.array,
    scales: mx.array,
    biases: mx.array | None = None,
    transpose: bool = True,
    group_size: int | None = None,
    bits: int | None = None,
    mode: Literal["affine", "mxfp4", "mxfp8", "nvfp4"] = "affine",
    *,
    residual: mx.array | None = None,
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""Matrix multiplication with a quantized matrix, plus a residual.

    .. math::

        y = x W^\top + r, \quad
        W_{nk} = s_{ng} q_{nk} + b_{ng} \text{ for } k \text{ in group } g

    As :func:`mlx.core.quantized_matmul`. On a GPU, up to 16 rows of ``x`` (on Metal 8, from Apple's
    generation 15 on 4) and a matrix of 4 or 8 bits in groups of 32, 64 or 128 take one launch,
    which reads the matrix once, whatever the number of rows: on CUDA from compute capability 8.0
    on, if ``x``, ``scales``, ``biases`` and ``residual`` have one dtype, ``w`` two axes, and
    ``transpose`` is true. Sums are in float32, and a row's bits do not depend on the rows beside
    it. Everything else is MLX's product. In either case the product is rounded to its dtype before
    ``residual`` is added.

    Derivatives are those of MLX's product: in ``x``, ``residual``, and, in reverse mode, ``scales``
    and ``biases``. :func:`mlx.core.vmap` maps ``x`` and ``residual``.

    Args:
        x (array): Input of shape ``[..., K]``.
        w (array): The packed matrix, ``[N, K * bits / 32]``, or, if ``transpose`` is false,
          ``[K, N * bits / 32]``; uint32.
        scales (array): One per group of a row of ``w``, as :func:`mlx.core.quantize` returns them.
        biases (array, optional): Likewise, in the mode ``"affine"``.
        transpose (bool): Whether ``w`` is transposed. Default: ``True``.
        group_size (int, optional): The size of a group. Default: the mode's, 64 for ``"affine"``.
        bits (int, optional): The bits of an element. Default: the mode's, 4 for ``"affine"``.
        mode (str): The quantization mode. Default: ``"affine"``.
        residual (array, optional): Added to the product, of its shape; float32, float16 or
          bfloat16.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: Of shape ``[..., N]``; its dtype is the one that the dtypes of ``x``, ``scales``,
        ``biases`` and ``residual`` promote to.

    Raises:
        ValueError: If ``residual`` has not the product's shape or another dtype, ``w``, ``scales``
          or ``biases`` are mapped by vmap, or MLX's product refuses the other arguments.

    Example:
        >>> w, scales, biases = mx.quantize(mx.ones((2, 64)))
        >>> mlx_norms.quantized_matmul(mx.ones((1, 64)), w, scales, biases)
        array([[64, 64]], dtype=float32)
    """
    return _ext.quantized_matmul(
        x=x,
        w=w,
        scales=scales,
        biases=biases,
        transpose=transpose,
        group_size=group_size,
        bits=bits,
        mode=mode,
        residual=residual,
        stream=stream,
    )


def matmul(
    a: mx.array,
    b: mx.array,
    *,
    kernel: Literal["auto", "gemv", "simdgroup_blocked"] = "auto",
    stream: mx.StreamOrDevice = None,
) -> mx.array:
    r"""Matrix multiplication, with our kernels on Metal and MLX's elsewhere.

    .. math::

        c_{ij} = \sum_k a_{ik} b_{kj}

    A 1-D ``a`` is a row and a 1-D ``b`` a column, whose axis the result does not have. Axes before
    the last two are batch axes, and broadcast.

    On Metal, ``"auto"`` chooses between two kernels that accumulate in float32: ``"gemv"`` for up
    to 8 rows of ``a`` or columns of ``b``, which reads the other operand once, and otherwise
    ``"simdgroup_blocked"``, which multiplies 8x8 blocks from tiles in threadgroup memory. Operands
    that are contiguous along one of the last two axes are not copied. Other dtypes and mixed dtypes
    go to MLX's matmul. Either kernel can be named on any GPU. Gradients are matmuls with the same
    ``kernel``, except that those of ``"gemv"`` choose between the two by shape.

    Args:
        a (array): Input of shape ``[..., M, K]`` or ``[K]``. If a kernel is named, float32, float16
          or bfloat16.
        b (array): Input of shape ``[..., K, N]`` or ``[K]``. If a kernel is named, of the same
          dtype as ``a``.
        kernel (str): ``"auto"``, which on the CPU and CUDA is :func:`mlx.core.matmul`, or, on a
          GPU, ``"simdgroup_blocked"`` or ``"gemv"``. Default: ``"auto"``.
        stream (StreamOrDevice): Stream or device.

    Returns:
        array: The product, of shape ``[..., M, N]``.

    Raises:
        ValueError: If ``a`` or ``b`` has no axis, their shapes do not match, there is no such
          ``kernel``, or the named kernel does not accept their dtypes, is called on the CPU, or is
          ``"gemv"`` while ``a`` has more than 8 rows and ``b`` more than 8 columns.

    Example:
        >>> a = mx.array([[1.0, 2.0], [3.0, 4.0]])
        >>> mlx_norms.matmul(a, mx.array([1.0, 10.0]))
        array([21, 43], dtype=float32)
    """
    return _ext.matmul(a=a, b=b, kernel=kernel, stream=stream)
