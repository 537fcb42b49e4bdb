"""``mlx.nn``'s group, instance and batch norm, computed by the ops of this package.

A layer with an array as ``eps`` or another option is computed by ``mlx.nn``.
"""

import mlx.core as mx
import mlx.nn

import mlx_norms

from .layers import output_dtype

# Whether the running variance of mlx.nn's batch norm is the unbiased one, as that of our op.
_UNBIASED = "ddof" in mlx.nn.BatchNorm._calc_stats.__code__.co_varnames
OPTIONS = {"num_groups", "eps", "pytorch_compatible", "momentum", "track_running_stats"}


class GroupNorm(mlx.nn.GroupNorm):
    r"""Applies group normalization to the inputs.

    Computes

    .. math::

        y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} \gamma + \beta,

    over the positions and one group of the features of each sample, with
    :func:`mlx_norms.group_norm`. Constructor, parameters, state and output dtype are those of
    :class:`mlx.nn.GroupNorm`, so either class loads the other's weights. 16-bit inputs are
    computed in float32, also where ``mlx.nn`` takes their statistics in 16 bits.

    Args:
        num_groups (int): Number of groups to separate the features into.
        dims (int): The feature dimension of the input.
        eps (float): A small additive constant for numerical stability. Default: ``1e-5``.
        affine (bool): If ``True`` learn an affine transform to apply after the normalization.
            Default: ``True``.
        pytorch_compatible (bool): If ``True`` a group is features that adjoin, as in PyTorch, else
            those ``num_groups`` apart. Default: ``False``.

    Shape:
        Input and output: ``(N, ..., dims)``, float32, float16 or bfloat16. The output dtype is
        ``mx.result_type(x, weight, bias)``, or that of ``x`` without a weight.

    Raises:
        ValueError: From the constructor if ``eps`` is not positive or ``num_groups`` does not
            divide ``dims``; when called, if the input or a parameter has a dtype other than the
            three above, or its length is not ``dims``.
    """

    def __call__(self, x: mx.array) -> mx.array:
        if has_array_options(self):
            return super().__call__(x)
        weight, bias = _affine(self)
        return mlx_norms.group_norm(
            x,
            self.num_groups,
            weight,
            bias,
            self.eps,
            pytorch_compatible=self.pytorch_compatible,
            dtype=output_dtype(x, weight, bias),
        )


class InstanceNorm(mlx.nn.InstanceNorm):
    r"""Applies instance normalization to the inputs.

    Computes

    .. math::

        y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} \gamma + \beta,

    over the positions of one feature of each sample, with :func:`mlx_norms.instance_norm`.
    Constructor, parameters, state and output dtype are those of :class:`mlx.nn.InstanceNorm`, so
    either class loads the other's weights.

    Args:
        dims (int): The feature dimension of the input.
        eps (float): A small additive constant for numerical stability. Default: ``1e-5``.
        affine (bool): If ``True`` learn an affine transform to apply after the normalization.
            Default: ``False``.

    Shape:
        Input and output: ``(N, ..., dims)`` with at least three axes, float32, float16 or bfloat16.
        The output dtype is ``mx.result_type(x, weight, bias)``, or that of ``x`` without a weight.

    Raises:
        ValueError: From the constructor if ``eps`` is not positive; when called, if the input has
            less than three axes, the input or a parameter has a dtype other than the three above,
            or its length is not ``dims``.
    """

    def __call__(self, x: mx.array) -> mx.array:
        if has_array_options(self):
            return super().__call__(x)
        weight, bias = _affine(self)
        dtype = output_dtype(x, weight, bias)
        return mlx_norms.instance_norm(x, weight, bias, self.eps, dtype=dtype)


class BatchNorm(mlx.nn.BatchNorm):
    r"""Applies batch normalization to the inputs.

    Computes

    .. math::

        y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} \gamma + \beta,

    over all samples and positions of one feature, with :func:`mlx_norms.batch_norm`. In training
    it updates the running mean and variance, which it uses in inference; without them it uses the
    input's. Constructor, parameters, state and dtypes are those of :class:`mlx.nn.BatchNorm`, so
    either class loads the other's weights. 16-bit inputs are computed in float32, where ``mlx.nn``
    takes their statistics in 16 bits.

    A compiled function that trains has the model's state among its ``inputs`` and ``outputs``.

    Args:
        num_features (int): The feature dimension of the input.
        eps (float): A small additive constant for numerical stability. Default: ``1e-5``.
        momentum (float): How much of the new statistics is the input's. Default: ``0.1``.
        affine (bool): If ``True`` learn an affine transform to apply after the normalization.
            Default: ``True``.
        track_running_stats (bool): If ``True``, track the running mean and variance. Default:
            ``True``.

    Shape:
        Input and output: ``(N, C)``, ``(N, L, C)`` or ``(N, H, W, C)``, float32, float16 or
        bfloat16. The output dtype is ``mx.result_type(x, weight, bias)`` and, in inference, of the
        running statistics, too.

    Raises:
        ValueError: From the constructor if ``eps`` is not positive; when called, if the input has
            another number of axes or, in training, one value per feature, the input, a parameter
            or a statistic has a dtype other than the three above, or its length is not
            ``num_features``.
    """

    def __call__(self, x: mx.array) -> mx.array:
        if has_array_options(self):
            return super().__call__(x)
        if not 2 <= x.ndim <= 4:
            raise ValueError(f"[BatchNorm] x must have 2, 3 or 4 axes but has shape {x.shape}.")
        weight, bias = _affine(self)
        mean = var = None
        if self.track_running_stats:
            mean, var = self.running_mean, self.running_var
        dtype = output_dtype(x, weight, bias, *(() if self.training else (mean, var)))
        y = mlx_norms.batch_norm(
            x,
            weight,
            bias,
            self.eps,
            mean=mean,
            var=var,
            training=self.training,
            momentum=self.momentum if _UNBIASED or not self.training else 1.0,
            dtype=dtype,
        )
        if self.training and self.track_running_stats:
            y, *new = y
            if not _UNBIASED:
                new = _biased(self, x.size // x.shape[-1], *new)
            self.running_mean, self.running_var = new
        return y


def has_array_options(layer: mlx.nn.Module) -> bool:
    """Whether an option is an array: a parameter for ``mlx.nn``, and no number for our ops."""
    return not OPTIONS.isdisjoint(layer)  # a module's items are arrays and containers


def _biased(
    layer: mlx.nn.BatchNorm, n: int, mean: mx.array, var: mx.array
) -> tuple[mx.array, mx.array]:
    """The running statistics as before MLX 0.32.1, from those of n values a channel."""
    mu = layer.momentum
    return (
        (1 - mu) * layer.running_mean + mu * mean,
        (1 - mu) * layer.running_var + mu * (n - 1) / n * var,
    )


def _affine(layer: mlx.nn.Module) -> tuple[mx.array | None, mx.array | None]:
    """Weight and bias; as in ``mlx.nn``, a bias alone is not used."""
    return (layer.weight, layer.bias) if "weight" in layer else (None, None)
