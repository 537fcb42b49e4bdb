"""``mlx.nn``'s norm layers of rows, computed by the ops of this package."""

import mlx.core as mx
import mlx.nn

import mlx_norms


class RMSNorm(mlx.nn.RMSNorm):
    r"""Applies Root Mean Square normalization to the inputs.

    Computes

    .. math::

        y = \frac{x}{\sqrt{E[x^2] + \epsilon}} \gamma

    with :func:`mlx_norms.rms_norm`. Constructor, parameters, state and output dtype are those of
    :class:`mlx.nn.RMSNorm`, so either class loads the other's weights.

    Args:
        dims (int): The feature dimension of the input to normalize over.
        eps (float): A small additive constant for numerical stability. Default: ``1e-5``.

    Shape:
        Input and output: ``(..., dims)``, float32, float16 or bfloat16. The output dtype is
        ``mx.result_type(x, weight)``.

    Raises:
        ValueError: From the constructor if ``eps`` is not positive; when called, if the input or
            a weight has a dtype other than the three above, or its length is not ``dims``.
    """

    def __call__(self, x: mx.array) -> mx.array:
        weight = self["weight"]
        dtype = output_dtype(x, weight)
        return mlx_norms.rms_norm(x, weight, self.eps, dtype=dtype)


class LayerNorm(mlx.nn.LayerNorm):
    r"""Applies layer normalization to the inputs.

    Computes

    .. math::

        y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} \gamma + \beta,

    with :func:`mlx_norms.layer_norm`. Constructor, parameters, state and output dtype are those
    of :class:`mlx.nn.LayerNorm`, so either class loads the other's weights.

    Args:
        dims (int): The feature dimension of the input to normalize over.
        eps (float): A small additive constant for numerical stability. Default: ``1e-5``.
        affine (bool): If ``True`` learn an affine transform to apply after the normalization.
            Default: ``True``.
        bias (bool): If ``True`` include a translation in the affine transform. Default: ``True``.

    Shape:
        Input and output: ``(..., dims)``, float32, float16 or bfloat16. The output dtype is
        ``mx.result_type(x, weight, bias)``, or that of ``x`` without a weight.

    Raises:
        ValueError: From the constructor if ``eps`` is not positive; when called, if the input or
            a parameter has a dtype other than the three above, or its length is not ``dims``.
    """

    def __call__(self, x: mx.array) -> mx.array:
        weight = self.get("weight")
        bias = self.get("bias")
        dtype = None if weight is None else output_dtype(x, weight, bias)
        return mlx_norms.layer_norm(x, weight, bias, self.eps, dtype=dtype)


def output_dtype(x: mx.array, *parameters: mx.array | None) -> mx.Dtype | None:
    """The dtype that ``mlx.nn`` returns, or ``None`` if it is x's, the default of our ops."""
    dtypes = {x.dtype, *(p.dtype for p in parameters if p is not None)}
    # Of float32, float16 and bfloat16 each two give float32.
    return None if len(dtypes) == 1 or x.dtype == mx.float32 else mx.float32
