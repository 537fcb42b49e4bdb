// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "csrc/group_norm/ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

using ArrayOrNumber = std::variant<float, array>;

[[noreturn]] void refuse_batch_norm_s_arguments() {
  throw nb::type_error(
      "[batch_norm] mean and var are taken by keyword only, both arrays or "
      "both None: batch_norm(x, weight, bias, eps, mean=..., var=...).");
}

// Null for None.
const array* statistic(const nb::object& given) {
  const array* a = nullptr;
  if (!given.is_none() && !nb::try_cast(given, a)) {
    refuse_batch_norm_s_arguments();
  }
  return a;
}

// In PyTorch's order x is followed by the statistics: an error, not another
// result.
auto batch_norm_by_keyword(
    const array& x,
    const array* weight,
    const array* bias,
    const ArrayOrNumber& eps,
    const nb::args& more,
    const nb::object& mean,
    const nb::object& var,
    bool training,
    float momentum,
    const std::optional<mx::Dtype>& dtype,
    mx::StreamOrDevice stream) {
  auto* number = std::get_if<float>(&eps);
  if (!number || more.size() > 0) {
    refuse_batch_norm_s_arguments();
  }
  return batch_norm(
      x,
      weight,
      bias,
      statistic(mean),
      statistic(var),
      *number,
      training,
      momentum,
      dtype,
      stream);
}

} // namespace

void bind_group_norm(nb::module_& m) {
  m.def(
      "group_norm",
      &group_norm,
      "x"_a,
      "num_groups"_a,
      "weight"_a.none() = nb::none(),
      "bias"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "pytorch_compatible"_a = false,
      "activation"_a = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def group_norm(x: mlx.core.array, num_groups: int, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, pytorch_compatible: bool = False, activation: typing.Literal[\"silu\", \"gelu\"] | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Group normalization: over all positions of a group of channels of a
        sample.

        .. math::

            y = a\left(\frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} w + b\right)

        where :math:`a` is the ``activation``. Everything is computed in float32
        and rounded once; a large mean costs no precision. The result of a
        sample does not depend on the others.

        Args:
            x (array): Input of shape ``[N, ..., C]``, channels last, float32,
              float16 or bfloat16.
            num_groups (int): Into how many groups the channels are split. It
              divides ``C``.
            weight (array, optional): A weight of shape ``[C]``, of any of the
              three dtypes. Default: ``None``, the result is not scaled.
            bias (array, optional): A bias, likewise. Default: ``None``.
            eps (float): Added to the variance. Not negative. Default: ``1e-5``.
            pytorch_compatible (bool): Whether a group is ``C / num_groups``
              channels that adjoin, as in PyTorch, else those ``num_groups``
              apart, as :class:`mlx.nn.GroupNorm` has them by default. Default:
              ``False``.
            activation (str, optional): ``"silu"`` or ``"gelu"``, of the result.
              Default: ``None``.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has less than two axes, ``num_groups`` does not divide ``C``,
              ``eps`` is negative, or ``activation`` is another.

        Example:
            >>> x = mx.array([[[1.0, 2.0, 30.0, 40.0], [3.0, 4.0, 50.0, 60.0]]])
            >>> mlx_norms.group_norm(x, 2, pytorch_compatible=True)
            array([[[-1.34164, -0.447212, -1.34164, -0.447214],
                    [0.447212, 1.34164, 0.447214, 1.34164]]], dtype=float32)
      )pbdoc");

  m.def(
      "instance_norm",
      &instance_norm,
      "x"_a,
      "weight"_a.none() = nb::none(),
      "bias"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def instance_norm(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Instance normalization: over all positions of a channel of a sample.

        It is :func:`group_norm` with groups of one channel.

        Args:
            x (array): Input of shape ``[N, ..., C]`` with at least one axis of
              positions, float32, float16 or bfloat16.
            weight (array, optional): A weight of shape ``[C]``, of any of the
              three dtypes. Default: ``None``, the result is not scaled.
            bias (array, optional): A bias, likewise. Default: ``None``.
            eps (float): Added to the variance. Not negative. Default: ``1e-5``.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has less than three axes, or ``eps`` is negative.
      )pbdoc");

  def_forms(
      m,
      "batch_norm",
      {"def batch_norm(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, mean: None, var: None, training: bool = False, momentum: float = 0.1, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array",
       "def batch_norm(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, mean: mlx.core.array, var: mlx.core.array, training: typing.Literal[False] = False, momentum: float = 0.1, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array",
       "def batch_norm(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, mean: mlx.core.array, var: mlx.core.array, training: typing.Literal[True], momentum: float = 0.1, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array, mlx.core.array]",
       "def batch_norm(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, mean: mlx.core.array | None, var: mlx.core.array | None, training: bool = False, momentum: float = 0.1, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array | tuple[mlx.core.array, mlx.core.array, mlx.core.array]"},
      R"pbdoc(
        Batch normalization: over all samples and positions of a channel.

        In training ``x`` is normalized by its own mean and (biased) variance,
        through which gradients flow, and the running statistics are updated as
        by :class:`mlx.nn.BatchNorm`, with the unbiased variance:

        .. math::

            m' = (1 - \mu)\,m + \mu\,E[x], \quad
            v' = (1 - \mu)\,v + \mu\,\frac{n}{n - 1} Var[x]

        where :math:`\mu` is the ``momentum`` and :math:`n` the number of values
        per channel. Else ``x`` is normalized by the running statistics or, if
        there are none, by its own. Everything is computed in float32, and each
        result rounded once.

        Args:
            x (array): Input of shape ``[N, ..., C]``, float32, float16 or
              bfloat16.
            weight (array, optional): A weight of shape ``[C]``, of any of the
              three dtypes. Default: ``None``, the result is not scaled.
            bias (array, optional): A bias, likewise. Default: ``None``.
            eps (float): Added to the variance. Not negative. Default: ``1e-5``.
            mean (array or None): The running mean, likewise, by keyword.
              ``None``, with ``var``: no statistics are kept, as with
              ``track_running_stats=False``.
            var (array or None): The running variance, likewise.
            training (bool): Whether the batch's statistics are used, and update
              the running ones. Default: ``False``.
            momentum (float): How much of the new statistics is the batch's.
              Default: ``0.1``.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array | tuple(array, array, array): The normalized input, of ``x``'s
            shape; in training with running statistics, it and their new values,
            in the dtypes to which each and ``x`` promote.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has less than two axes or, in training, one value per channel,
              only one of ``mean`` and ``var`` is ``None``, or ``eps`` is
              negative.
            TypeError: If ``mean`` and ``var`` are not given by keyword.)pbdoc",
      &batch_norm_by_keyword,
      "x"_a,
      "weight"_a.none() = nb::none(),
      "bias"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      "more"_a,
      "mean"_a.none() = nb::ellipsis(), // not given
      "var"_a.none() = nb::ellipsis(),
      "training"_a = false,
      "momentum"_a = 0.1f,
      "dtype"_a = nb::none(),
      "stream"_a = nb::none());
}

} // namespace mlx_norms
