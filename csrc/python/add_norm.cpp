// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/norm/ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

void bind_add_norm(nb::module_& m) {
  m.def(
      "add_rms_norm",
      &add_rms_norm,
      "x"_a,
      "residual"_a,
      "weight"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "clamp"_a = false,
      "rounding"_a = nb::none(),
      "residual2"_a.none() = nb::none(),
      "factor"_a.none() = nb::none(),
      "scale"_a = nb::none(),
      "shift"_a = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def add_rms_norm(x: mlx.core.array, residual: mlx.core.array, weight: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, clamp: bool = False, rounding: typing.Literal[\"early\", \"late\"] | None = None, residual2: mlx.core.array | None = None, factor: mlx.core.array | float | None = None, scale: mlx.core.array | float | None = None, shift: mlx.core.array | float | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]"),
      R"pbdoc(
        Residual add and RMS norm: the norm of ``x + residual``, and the sum.

        .. math::

            s = x + r, \quad y = \frac{s}{\sqrt{E[s^2] + \epsilon}} (w + w_0)

        The sum is rounded to its dtype before the norm, so the result is
        bit-identical to ``rms_norm(x + residual)``.

        With a ``factor`` it is :math:`s = r + f x`, as of a layer scale.
        Rounding early, that is bit-identical to MLX's ops, cast to the sum's
        dtype. ``scale`` and ``shift`` are those of :func:`rms_norm`.

        With a ``residual2`` it is :math:`s = (x + r) + r_2`, of which the first
        sum is rounded to its own dtype: bit-identical to two of MLX's
        additions, which commute. Of :math:`h + (a + b)`, as of a layer of
        experts and a shared one, ``x`` and ``residual`` are ``a`` and ``b``,
        and ``residual2`` is ``h``.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            residual (array): Added to ``x``; of the same shape and any of the
              three dtypes. The sum's dtype is the one both promote to.
            weight (array, optional): A weight of shape ``[D]``, of any of the
              three dtypes. If ``None`` the result is not scaled.
            eps (float): Added to the mean square. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to ``weight`` in float32. Default:
              ``0.0``.
            clamp (bool): Saturate a float16 sum at ±65504 where it would be
              infinite; NaN stays NaN. The derivative is zero where the sum is
              saturated. Sums of other dtypes are unaffected. Default:
              ``False``.
            rounding (str, optional): ``"early"`` or ``"late"``, as in
              :func:`rms_norm`.
            residual2 (array, optional): Added to the sum of ``x`` and
              ``residual``, of the same shape and any of the three dtypes.
              Default: ``None``.
            factor (array or float, optional): ``x`` is multiplied by it before it
              is added: a number, in ``x``'s dtype, or an array that broadcasts
              to ``x`` and has its last axis, such as a layer scale ``[D]`` or
              one for each sample ``[B, 1, D]``. Rounding early, the product is
              rounded, too.
              Default: ``None``.
            scale (array or float, optional): As in :func:`rms_norm`.
            shift (array or float, optional): As in :func:`rms_norm`.
            dtype (Dtype, optional): The normalized output's dtype, one of the
              three. Default: that of the sum.
            stream (StreamOrDevice): Stream or device.

        Returns:
            tuple(array, array): The normalized sum and the sum, both of ``x``'s
            shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, or there is a
              ``weight_offset`` and no ``weight``, or ``clamp`` and a
              ``residual2``.

        Example:
            >>> x = mx.array([60000.0, 3.0], mx.float16)
            >>> mlx_norms.add_rms_norm(x, x)[1]
            array([inf, 6], dtype=float16)
            >>> mlx_norms.add_rms_norm(x, x, clamp=True)
            (array([1.41406, 0.00012958], dtype=float16), array([65504, 6], dtype=float16))
            >>> mlx_norms.add_rms_norm(x, x.astype(mx.float32))
            (array([1.41421, 7.07107e-05], dtype=float32), array([120000, 6], dtype=float32))
      )pbdoc");

  m.def(
      "add_layer_norm",
      &add_layer_norm,
      "x"_a,
      "residual"_a,
      "weight"_a.none() = nb::none(),
      "bias"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "clamp"_a = false,
      "rounding"_a = nb::none(),
      "residual2"_a.none() = nb::none(),
      "factor"_a.none() = nb::none(),
      "scale"_a = nb::none(),
      "shift"_a = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def add_layer_norm(x: mlx.core.array, residual: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, clamp: bool = False, rounding: typing.Literal[\"early\", \"late\"] | None = None, residual2: mlx.core.array | None = None, factor: mlx.core.array | float | None = None, scale: mlx.core.array | float | None = None, shift: mlx.core.array | float | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]"),
      R"pbdoc(
        Residual add and layer norm: the norm of ``x + residual``, and the sum.

        .. math::

            s = x + r, \quad
            y = \frac{s - E[s]}{\sqrt{Var[s] + \epsilon}} (w + w_0) + b

        The sum is rounded to its dtype before the norm, so the result is
        bit-identical to ``layer_norm(x + residual)``.

        With a ``factor`` it is :math:`s = r + f x`, as of a layer scale.
        Rounding early, that is bit-identical to MLX's ops, cast to the sum's
        dtype. ``scale`` and ``shift`` are those of :func:`layer_norm`.

        With a ``residual2`` it is :math:`s = (x + r) + r_2`, of which the first
        sum is rounded to its own dtype: bit-identical to two of MLX's
        additions, which commute. Of :math:`h + (a + b)`, as of a layer of
        experts and a shared one, ``x`` and ``residual`` are ``a`` and ``b``,
        and ``residual2`` is ``h``.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            residual (array): Added to ``x``; of the same shape and any of the
              three dtypes. The sum's dtype is the one both promote to.
            weight (array, optional): A weight of shape ``[D]``, of any of the
              three dtypes. If ``None`` the result is not scaled.
            bias (array, optional): Added to the result, of shape ``[D]`` and
              any of the three dtypes. If ``None`` nothing is added.
            eps (float): Added to the variance. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to ``weight`` in float32. Default:
              ``0.0``.
            clamp (bool): Saturate a float16 sum, as in :func:`add_rms_norm`.
              Default: ``False``.
            rounding (str, optional): ``"early"`` or ``"late"``, as in
              :func:`layer_norm`.
            residual2 (array, optional): Added to the sum of ``x`` and
              ``residual``, of the same shape and any of the three dtypes.
              Default: ``None``.
            factor (array or float, optional): ``x`` is multiplied by it before it
              is added: a number, in ``x``'s dtype, or an array that broadcasts
              to ``x`` and has its last axis, such as a layer scale ``[D]`` or
              one for each sample ``[B, 1, D]``. Rounding early, the product is
              rounded, too.
              Default: ``None``.
            scale (array or float, optional): As in :func:`layer_norm`.
            shift (array or float, optional): As in :func:`layer_norm`.
            dtype (Dtype, optional): The normalized output's dtype, one of the
              three. Default: that of the sum.
            stream (StreamOrDevice): Stream or device.

        Returns:
            tuple(array, array): The normalized sum and the sum, both of ``x``'s
            shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, or there is a
              ``weight_offset`` and no ``weight``, or ``clamp`` and a
              ``residual2``.
      )pbdoc");

  m.def(
      "norm_add_norm",
      &norm_add_norm,
      "x"_a,
      "residual"_a,
      "post_weight"_a.none() = nb::none(),
      "weight"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "clamp"_a = false,
      "rounding"_a = nb::none(),
      "factor"_a.none() = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def norm_add_norm(x: mlx.core.array, residual: mlx.core.array, post_weight: mlx.core.array | None = None, weight: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, clamp: bool = False, rounding: typing.Literal[\"early\", \"late\"] | None = None, factor: mlx.core.array | float | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]"),
      R"pbdoc(
        RMS norm, residual add and RMS norm: the norm after a layer, the sum, and
        the norm before the next layer.

        .. math::

            h = r + \frac{x}{\sqrt{E[x^2] + \epsilon}} (w_p + w_0), \quad
            y = \frac{h}{\sqrt{E[h^2] + \epsilon}} (w + w_0)

        where :math:`w_0` is the ``weight_offset``. Rounding early, the result is
        bit-identical to ``h = residual + rms_norm(x, post_weight)`` and
        ``rms_norm(h, weight)``; late, only ``h`` and ``y`` are rounded. One
        launch, but two on a GPU for a 16-bit ``x`` and a sum in float32, rounded
        early. Gemma 2 and 3, OLMo 2 and GLM-4 have such norms.

        With a ``factor`` it is :math:`h = r + f\,n`, where :math:`n` is the norm of
        ``x``, as of a gate or a layer scale. Rounding early that is
        bit-identical to :func:`add_rms_norm` of :math:`n` with it.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            residual (array): Added to the norm of ``x``; of the same shape and
              any of the three dtypes. The sum's dtype is the one both promote
              to.
            post_weight (array, optional): The weight of ``x``'s norm, of shape
              ``[D]`` and any of the three dtypes. If ``None`` it is not scaled.
            weight (array, optional): That of the sum's norm, likewise.
            eps (float): Added to both mean squares. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to both weights in float32; ``1.0`` for
              Gemma, which stores its weights minus one. Default: ``0.0``.
            clamp (bool): As in :func:`add_rms_norm`. Default: ``False``.
            rounding (str, optional): ``"early"`` or ``"late"``, as in
              :func:`rms_norm`, of both norms. Late, the norm of ``x`` is not
              rounded before it is added.
            factor (array or float, optional): The norm of ``x`` is multiplied by
              it before it is added: a number or an array, as ``x`` of
              :func:`add_rms_norm` is. Its gradients take more than one launch.
              Default: ``None``.
            dtype (Dtype, optional): The normalized output's dtype, one of the
              three. Default: that of the sum.
            stream (StreamOrDevice): Stream or device.

        Returns:
            tuple(array, array): The normalized sum and the sum, both of ``x``'s
            shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, or there is a
              ``weight_offset`` and one of the weights is missing.

        Example:
            >>> x, residual = mx.array([3.0, 4.0]), mx.array([1.0, 1.0])
            >>> mlx_norms.norm_add_norm(x, residual, mx.array([2.0, 0.5]))
            (array([1.22306, 0.710008], dtype=float32), array([2.69706, 1.56569], dtype=float32))
      )pbdoc");
}

} // namespace mlx_norms
