// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <variant>

#include "csrc/common/checks.h"
#include "csrc/linear/ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

// An array, or the three arrays of mx.quantize.
using Weight = std::variant<array, Arrays>;
// One weight, or a list of them.
using Weights = std::variant<array, std::vector<Weight>>;
using Biases = std::optional<std::variant<array, std::vector<OptionalArray>>>;

// mx.quantize returns a list. Its uint32 array tells it from a list of weights.
bool is_quantized(const std::vector<Weight>& weights) {
  auto is_array = [](const Weight& w) { return w.index() == 0; };
  return weights.size() == 3 &&
      std::all_of(weights.begin(), weights.end(), is_array) &&
      std::get<0>(weights[0]).dtype() == mx::uint32;
}

Arrays parts_of(const Weight& weight) {
  auto* a = std::get_if<array>(&weight);
  return a ? Arrays{*a} : std::get<Arrays>(weight);
}

// One op's arguments besides those of its norm, and its results for Python.
class Call {
 public:
  Call(
      const char* op,
      const Weights& weights,
      const Biases& biases,
      bool gated,
      bool residual)
      : residual_(residual) {
    auto* several = std::get_if<std::vector<Weight>>(&weights);
    one_ = !several || is_quantized(*several);
    projected_.gated = gated;
    if (!several) {
      projected_.weights = {{std::get<array>(weights)}};
    } else if (one_) {
      projected_.weights.emplace_back();
      for (const auto& part : *several) {
        projected_.weights[0].push_back(std::get<array>(part));
      }
    } else {
      for (const auto& weight : *several) {
        projected_.weights.push_back(parts_of(weight));
      }
    }
    take_biases(op, biases);
  }

  const Projected& projected() const {
    return projected_;
  }

  nb::object results(Arrays outputs) const {
    OptionalArray sum;
    if (residual_) {
      sum = std::move(outputs.back());
      outputs.pop_back();
    }
    auto y = one_ || projected_.gated ? nb::cast(outputs[0])
                                      : nb::cast(std::move(outputs));
    return sum ? nb::make_tuple(y, *sum) : y;
  }

 private:
  void take_biases(const char* op, const Biases& biases) {
    if (!biases) {
      projected_.biases.resize(projected_.weights.size());
      return;
    }
    auto* several = std::get_if<std::vector<OptionalArray>>(&*biases);
    if (one_ == (several != nullptr)) {
      refuse(
          op,
          one_ ? "biases must be an array or None, as weights is one."
               : "biases must be a list or None, as weights is a list.");
    }
    projected_.biases =
        several ? *several : std::vector<OptionalArray>{std::get<0>(*biases)};
  }

  Projected projected_;
  bool residual_;
  bool one_; // one weight, not a list
};

} // namespace

void bind_linear(nb::module_& m) {
  def_forms(
      m,
      "rms_norm_linear",
      {"def rms_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, weights: mlx.core.array, eps: float = 1e-5, *, biases: mlx.core.array | None = None, residual: None = None, gated: bool = False, weight_offset: float = 0.0, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array",
       "def rms_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, weights: mlx.core.array, eps: float = 1e-5, *, biases: mlx.core.array | None = None, residual: mlx.core.array, gated: bool = False, weight_offset: float = 0.0, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]",
       "def rms_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, weights: collections.abc.Sequence[mlx.core.array | collections.abc.Sequence[mlx.core.array]], eps: float = 1e-5, *, biases: collections.abc.Sequence[mlx.core.array | None] | None = None, residual: None = None, gated: typing.Literal[True], weight_offset: float = 0.0, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array",
       "def rms_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, weights: collections.abc.Sequence[mlx.core.array | collections.abc.Sequence[mlx.core.array]], eps: float = 1e-5, *, biases: collections.abc.Sequence[mlx.core.array | None] | None = None, residual: mlx.core.array, gated: typing.Literal[True], weight_offset: float = 0.0, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]",
       "def rms_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, weights: mlx.core.array | collections.abc.Sequence[mlx.core.array | collections.abc.Sequence[mlx.core.array]], eps: float = 1e-5, *, biases: mlx.core.array | collections.abc.Sequence[mlx.core.array | None] | None = None, residual: mlx.core.array | None = None, gated: bool = False, weight_offset: float = 0.0, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array | list[mlx.core.array] | tuple[mlx.core.array | list[mlx.core.array], mlx.core.array]"},
      R"pbdoc(
        RMS norm over the last axis, and linear projections of the result.

        .. math::

            n = \frac{x}{\sqrt{E[x^2] + \epsilon}} (w + w_0), \quad
            y_i = n W_i^\top + b_i

        where :math:`w_0` is the ``weight_offset``. With a ``residual``,
        :math:`x` is replaced by :math:`x + r`, rounded to its dtype. With
        ``gated``, the result is :math:`y_1 \sigma(y_1) \, y_2`, which is
        ``mlx.nn.silu(y_1) * y_2``.

        On a GPU, up to 8 rows are computed in one launch for all weights (on
        Metal from Apple's generation 15 on up to 4, on CUDA of dense ones 4).
        :math:`1 / \sqrt{E[x^2] + \epsilon}` is one factor per row, so the
        kernel sums :math:`x^2` beside the dot products and needs no separate
        launch for the norm, as in `FlashNorm
        <https://arxiv.org/abs/2407.09577>`_. More rows, the CPU, gradients and
        anything that the kernel does not support run as two steps:
        :func:`rms_norm` with ``rounding="late"``, then MLX's matmuls, called as
        the layers of ``mlx.nn`` call them.

        In one launch everything is float32 up to the result: the normalized row
        is never rounded. In two steps it is rounded to the dtype of ``x`` or of
        the sum, and a projection is rounded before its bias or gate where MLX
        does so. In 16 bits the two differ by these roundings.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            norm_weight (array, optional): The norm's weight of shape ``[D]``,
              of any of the three dtypes. If ``None`` the norm does not scale.
            weights (array or list): A weight of shape ``[N, D]``, as
              :class:`mlx.nn.Linear` stores it, or a list of 1 to 4 of them,
              which may differ in ``N``, in dtype and in kind. Each is an array
              of any of the three dtypes, or the three arrays that
              :func:`mlx.core.quantize` returns (affine; 4 or 8 bits, groups of
              32, 64 or 128, inferred from the shapes).
            eps (float): Added to the mean square. Not negative. Default:
              ``1e-5``.
            biases (array or list, optional): Added to the projection, of shape
              ``[N]`` and any of the three dtypes; for a list of weights, a list
              of an array or ``None`` per weight. If ``None`` nothing is added.
            residual (array, optional): Added to ``x`` before the norm; of the
              same shape and any of the three dtypes. The sum is also returned.
            gated (bool): Whether ``weights`` are a pair of one shape, the gate
              and up projections of a gated layer. Default: ``False``.
            weight_offset (float): Added to ``norm_weight`` in float32. Default:
              ``0.0``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array, list(array) or tuple: An array of shape ``[..., N]`` for one
            weight or a ``gated`` pair; for a list of weights, a list of one
            array per weight. With a ``residual``, a tuple of that and
            ``x + residual``. The dtype is the one that the dtypes of ``x`` (or
            of the sum), the weight and the bias promote to.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, there are not as many ``biases``
              as weights, ``gated`` weights are not two of one shape, or there
              is a ``weight_offset`` and no ``norm_weight``.

        Example:
            >>> x, w = mx.array([[3.0, 4.0]]), mx.ones(2)
            >>> W = mx.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
            >>> mlx_norms.rms_norm_linear(x, w, W)
            array([[0.848528, 1.13137, 1.9799]], dtype=float32)
            >>> y, h = mlx_norms.rms_norm_linear(x, w, [W, W[:1]], residual=x)
            >>> y[1], h
            (array([[0.848528]], dtype=float32), array([[6, 8]], dtype=float32)))pbdoc",
      [](const array& x,
         const array* norm_weight,
         const Weights& weights,
         float eps,
         const Biases& biases,
         const array* residual,
         bool gated,
         float weight_offset,
         mx::StreamOrDevice stream) {
        Call call("rms_norm_linear", weights, biases, gated, residual);
        return call.results(rms_norm_linear(
            x,
            norm_weight,
            call.projected(),
            eps,
            residual,
            weight_offset,
            stream));
      },
      "x"_a,
      "norm_weight"_a.none(),
      "weights"_a,
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "biases"_a = nb::none(),
      "residual"_a.none() = nb::none(),
      "gated"_a = false,
      "weight_offset"_a = 0.0f,
      "stream"_a = nb::none());

  def_forms(
      m,
      "layer_norm_linear",
      {"def layer_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, norm_bias: mlx.core.array | None, weights: mlx.core.array, eps: float = 1e-5, *, biases: mlx.core.array | None = None, residual: None = None, gated: bool = False, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array",
       "def layer_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, norm_bias: mlx.core.array | None, weights: mlx.core.array, eps: float = 1e-5, *, biases: mlx.core.array | None = None, residual: mlx.core.array, gated: bool = False, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]",
       "def layer_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, norm_bias: mlx.core.array | None, weights: collections.abc.Sequence[mlx.core.array | collections.abc.Sequence[mlx.core.array]], eps: float = 1e-5, *, biases: collections.abc.Sequence[mlx.core.array | None] | None = None, residual: None = None, gated: typing.Literal[True], stream: mlx.core.StreamOrDevice = None) -> mlx.core.array",
       "def layer_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, norm_bias: mlx.core.array | None, weights: collections.abc.Sequence[mlx.core.array | collections.abc.Sequence[mlx.core.array]], eps: float = 1e-5, *, biases: collections.abc.Sequence[mlx.core.array | None] | None = None, residual: mlx.core.array, gated: typing.Literal[True], stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]",
       "def layer_norm_linear(x: mlx.core.array, norm_weight: mlx.core.array | None, norm_bias: mlx.core.array | None, weights: mlx.core.array | collections.abc.Sequence[mlx.core.array | collections.abc.Sequence[mlx.core.array]], eps: float = 1e-5, *, biases: mlx.core.array | collections.abc.Sequence[mlx.core.array | None] | None = None, residual: mlx.core.array | None = None, gated: bool = False, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array | list[mlx.core.array] | tuple[mlx.core.array | list[mlx.core.array], mlx.core.array]"},
      R"pbdoc(
        Layer norm over the last axis, and linear projections of the result.

        .. math::

            n = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} w + b, \quad
            y_i = n W_i^\top + b_i

        The number of launches, the rounding, ``residual`` and ``gated`` are as
        in :func:`rms_norm_linear`; quantized weights are two steps on Metal.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            norm_weight (array, optional): The norm's weight of shape ``[D]``,
              of any of the three dtypes. If ``None`` the norm does not scale.
            norm_bias (array, optional): The norm's bias, likewise. If ``None``
              nothing is added.
            weights (array or list): A weight of shape ``[N, D]``, as
              :class:`mlx.nn.Linear` stores it, or a list of 1 to 4 of them,
              which may differ in ``N``, in dtype and in kind. Each is an array
              of any of the three dtypes, or the three arrays that
              :func:`mlx.core.quantize` returns (affine; 4 or 8 bits, groups of
              32, 64 or 128, inferred from the shapes).
            eps (float): Added to the variance. Not negative. Default:
              ``1e-5``.
            biases (array or list, optional): Added to the projection, of shape
              ``[N]`` and any of the three dtypes; for a list of weights, a list
              of an array or ``None`` per weight. If ``None`` nothing is added.
            residual (array, optional): Added to ``x`` before the norm; of the
              same shape and any of the three dtypes. The sum is also returned.
            gated (bool): Whether ``weights`` are a pair of one shape, the gate
              and up projections of a gated layer. Default: ``False``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array, list(array) or tuple: An array of shape ``[..., N]`` for one
            weight or a ``gated`` pair; for a list of weights, a list of one
            array per weight. With a ``residual``, a tuple of that and
            ``x + residual``. The dtype is the one that the dtypes of ``x`` (or
            of the sum), the weight and the bias promote to.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, there are not as many ``biases``
              as weights, or ``gated`` weights are not two of one shape.

        Example:
            >>> x, w, b = mx.array([[1.0, 3.0]]), mx.ones(2), mx.zeros(2)
            >>> W = mx.array([[1.0, 0.0], [0.0, 2.0]])
            >>> mlx_norms.layer_norm_linear(x, w, b, W, biases=w / 2)
            array([[-0.499995, 2.49999]], dtype=float32))pbdoc",
      [](const array& x,
         const array* norm_weight,
         const array* norm_bias,
         const Weights& weights,
         float eps,
         const Biases& biases,
         const array* residual,
         bool gated,
         mx::StreamOrDevice stream) {
        Call call("layer_norm_linear", weights, biases, gated, residual);
        return call.results(layer_norm_linear(
            x,
            norm_weight,
            norm_bias,
            call.projected(),
            eps,
            residual,
            stream));
      },
      "x"_a,
      "norm_weight"_a.none(),
      "norm_bias"_a.none(),
      "weights"_a,
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "biases"_a = nb::none(),
      "residual"_a.none() = nb::none(),
      "gated"_a = false,
      "stream"_a = nb::none());
}

} // namespace mlx_norms
