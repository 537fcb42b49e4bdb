// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "csrc/norm/ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

void bind_norm(nb::module_& m) {
  m.def(
      "rms_norm",
      &rms_norm,
      "x"_a,
      "weight"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "rounding"_a = nb::none(),
      "scale"_a = nb::none(),
      "shift"_a = nb::none(),
      "gate"_a.none() = nb::none(),
      "activation"_a = nb::none(),
      "norm_before_gate"_a = true,
      "num_groups"_a = 1,
      "dtype"_a = nb::none(),
      "group"_a = nb::none(),
      "axis"_a = -1,
      "stream"_a = nb::none(),
      nb::sig(
          "def rms_norm(x: mlx.core.array, weight: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, rounding: typing.Literal[\"early\", \"late\"] | None = None, scale: mlx.core.array | float | None = None, shift: mlx.core.array | float | None = None, gate: mlx.core.array | None = None, activation: typing.Literal[\"silu\", \"sigmoid\", \"gelu\", \"relu2\"] | None = None, norm_before_gate: bool = True, num_groups: int = 1, dtype: mlx.core.Dtype | None = None, group: mlx.core.distributed.Group | None = None, axis: int = -1, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Root Mean Square normalization (RMS norm) over the last axis, or over
        ``axis``.

        .. math::

            y = \frac{x}{\sqrt{E[x^2] + \epsilon}} (w + w_0)

        where :math:`w_0` is the ``weight_offset``. Sums, products and the
        square root are computed in float32. The positional arguments are those
        of :func:`mlx.core.fast.rms_norm`.

        With a ``scale`` or a ``shift`` the result is :math:`y (1 + s) + t`, as in
        an adaptive norm. Rounding early it is bit-identical to those ops of MLX
        after this norm; late, it is rounded once.

        With a ``gate`` the result is :math:`y\,a(z)`, where :math:`z` is the gate
        and :math:`a` the ``activation``, or, without ``norm_before_gate``, the
        norm of :math:`x\,a(z)`; with an activation alone it is :math:`a(y)`.
        Rounding early it is bit-identical to those ops of MLX and this norm,
        with ``mx.sigmoid(z)``, ``z * mx.sigmoid(z)`` or
        ``z * (1 + mx.erf(z / math.sqrt(2))) / 2`` in the gate's dtype: what
        :mod:`mlx.nn` computes, without ``mx.compile``. Late, it is rounded once.
        With ``num_groups`` each of so many equal parts of a row is normalized by
        itself, as in Mamba-2.

        With a ``group``, the mean square is that of the whole row: the members
        add up one float32 scalar per row
        (:func:`mlx.core.distributed.all_sum`), and another in the backward
        pass. All members must make the same calls in the same order and request
        the same gradients, or they deadlock. Gradients are those of the sum of
        the members' losses with respect to this member's part of ``x`` or
        ``weight``; a loss that all members compute after an
        ``nn.ShardedToAllLinear`` counts once.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            weight (array, optional): A weight of shape ``[D]``, of any of the
              three dtypes. If ``None`` the result is not scaled.
            eps (float): Added to the mean square. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to ``weight`` in float32; ``1.0`` for
              Gemma, which stores its weights minus one. Default: ``0.0``.
            rounding (str, optional): When the normalized value is rounded to
              the output's dtype: ``"early"``, before the weight is applied and
              again after it, or ``"late"``, only at the end. Default:
              ``"early"``, or ``"late"`` if ``weight_offset`` is not zero.
            scale (array or float, optional): The result is multiplied by
              ``1 + scale``: a number, in the output's dtype, or an array of any
              of the three dtypes that broadcasts to ``x``, as MLX broadcasts,
              and has its last axis. One for each sample of ``[B, L, D]`` is
              ``[B, 1, D]``. Default: ``None``.
            shift (array or float, optional): Added after that; like ``scale``. Default:
              ``None``.
            gate (array, optional): Of ``x``'s shape and any of the three dtypes.
              Default: ``None``.
            activation (str, optional): ``"silu"``, ``"sigmoid"``, ``"gelu"`` or
              ``"relu2"``, of the gate or, without one, of the result. Default:
              ``None``, the gate itself.
            norm_before_gate (bool): Whether the gate multiplies the result, else
              ``x``; nothing without a gate. Default: ``True``.
            num_groups (int): Into how many parts the last axis is split, each of
              which has its own mean square. It divides ``D``; ``weight`` keeps
              the shape ``[D]``. A function compiled with ``shapeless=True``
              keeps this ``D``, as :func:`mlx.core.unflatten` does. Default:
              ``1``.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            group (Group, optional): The :class:`mlx.core.distributed.Group`
              over which each row is split in equal parts, without any of the
              arguments from ``scale`` to ``num_groups``. ``x`` is this member's
              part, of shape ``[..., D / size]``, and ``weight`` the
              matching part. A group of one has no effect. Default: ``None``.
            axis (int): The axis that is normalized: ``1`` for channels-first
              arrays ``[B, C, H, W]``, whose ``weight`` has shape ``[C]``. The
              result is row-contiguous. An axis other than the last one is taken
              without a ``scale``, ``shift``, ``gate``, ``num_groups`` or
              ``group``. Default: ``-1``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, ``axis`` is out of range, there
              is a ``weight_offset`` and no ``weight``, a ``group`` and one of
              the arguments from ``scale`` to ``num_groups``, a ``scale`` or
              ``shift`` and one of ``gate``, ``activation`` and ``num_groups``,
              or another ``axis`` than the last one and any of these but an
              ``activation``.

        Example:
            >>> x = mx.array([1.0, 2.0, 3.0], mx.bfloat16)
            >>> w = mx.array([0.3, 0.3, 0.3])
            >>> mlx_norms.rms_norm(x, w)
            array([0.138672, 0.277344, 0.417969], dtype=bfloat16)
            >>> mlx_norms.rms_norm(x, w, rounding="late")
            array([0.138672, 0.277344, 0.416016], dtype=bfloat16)
            >>> mlx_norms.rms_norm(x, w, dtype=mx.float32)
            array([0.138873, 0.277746, 0.416619], dtype=float32)
      )pbdoc");

  m.def(
      "l2_norm",
      &l2_norm,
      "x"_a,
      "eps"_a = 1e-6f,
      nb::kw_only(),
      "eps_inside"_a = false,
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def l2_norm(x: mlx.core.array, eps: float = 1e-6, *, eps_inside: bool = False, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Division by the Euclidean norm (L2 norm) over the last axis.

        .. math::

            y = \frac{x}{\max(\lVert x \rVert, \epsilon)}
            \quad \text{or} \quad
            y = \frac{x}{\sqrt{\sum x^2 + \epsilon}}

        The sum of squares and the square root are computed in float32. Where
        :math:`\epsilon` stands for the norm, the gradient is the cotangent over
        :math:`\epsilon`, also of a row of zeros.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            eps (float): The least that is divided by or, with ``eps_inside``,
              added to the sum of squares. Not negative. Default: ``1e-6``.
            eps_inside (bool): Which of the two formulas: the second, as in
              linear attention, if true. Default: ``False``.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape.

        Raises:
            ValueError: If ``x``'s dtype is not one of the three, ``x`` has no
              axis, or ``eps`` is negative.

        Example:
            >>> mlx_norms.l2_norm(mx.array([3.0, 4.0]))
            array([0.6, 0.8], dtype=float32)
      )pbdoc");

  m.def(
      "rms_norms",
      &rms_norms,
      "xs"_a,
      "weights"_a = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "scales"_a = nb::none(),
      "rounding"_a = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def rms_norms(xs: collections.abc.Sequence[mlx.core.array], weights: collections.abc.Sequence[mlx.core.array | None] | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, scales: collections.abc.Sequence[float] | None = None, rounding: typing.Literal[\"early\", \"late\"] | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> list[mlx.core.array]"),
      R"pbdoc(
        :func:`rms_norm` of one to four arrays, in one launch if they allow it.

        Each result has the bits of :func:`rms_norm`, whatever is beside it.
        Arrays of any shapes, dtypes and strides may be given: parts of one
        array, too, which are read in place.

        On a GPU, arrays whose threads read vectors of one size share a launch:
        16-bit rows of multiples of 8 elements; 16-bit rows of other multiples
        of 4 and float32 rows of multiples of 4; other rows. Others have their
        own launches, as have rows of different lengths, one of which is too
        long to be held by its threads (more than 16384 elements on Metal, or
        32768 on CUDA), and on Metal some with one of more than 4096.

        Args:
            xs (sequence of arrays): Inputs of shapes ``[..., D]``, float32,
              float16 or bfloat16.
            weights (sequence, optional): For each input a weight of shape
              ``[D]``, of any of the three dtypes, or ``None``. Default:
              ``None``, no result is scaled.
            eps (float): Added to the mean squares. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to each weight in float32. Default:
              ``0.0``.
            scales (sequence of floats, optional): For each input a number that
              multiplies its result; rounding early it is rounded to the
              result's dtype, and the product, too, as by MLX. Default: ``None``.
            rounding (str, optional): ``"early"`` or ``"late"``, as in
              :func:`rms_norm`, of all.
            dtype (Dtype, optional): The outputs' dtype, one of the three.
              Default: that of each input.
            stream (StreamOrDevice): Stream or device.

        Returns:
            list(array): The normalized inputs, in order, of their shapes.

        Raises:
            ValueError: If there are no arrays or more than four, ``weights`` or
              ``scales`` are not as many, an argument's dtype or shape is not as
              above, ``eps`` is negative, or there is a ``weight_offset`` and no
              weight.

        Example:
            >>> x = mx.array([1.0, 2.0, 3.0, 4.0])
            >>> mlx_norms.rms_norms([x, x[:2]], [None, mx.ones(2)], scales=[1, 2])
            [array([0.365148, 0.730296, 1.09544, 1.46059], dtype=float32),
             array([1.26491, 2.52982], dtype=float32)]
      )pbdoc");

  m.def(
      "l2_norms",
      &l2_norms,
      "xs"_a,
      "scales"_a = nb::none(),
      "eps"_a = 1e-6f,
      nb::kw_only(),
      "eps_inside"_a = false,
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def l2_norms(xs: collections.abc.Sequence[mlx.core.array], scales: collections.abc.Sequence[float] | None = None, eps: float = 1e-6, *, eps_inside: bool = False, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> list[mlx.core.array]"),
      R"pbdoc(
        :func:`l2_norm` of one to four arrays, in one launch if they allow it.

        Each result has the bits of :func:`l2_norm`, whatever is beside it, and
        :func:`rms_norms` says which share a launch.

        Args:
            xs (sequence of arrays): Inputs of shapes ``[..., D]``, float32,
              float16 or bfloat16.
            scales (sequence of floats, optional): For each input a number that
              multiplies its result, both of which are rounded to the result's
              dtype, as by MLX. Default: ``None``.
            eps (float): As in :func:`l2_norm`. Default: ``1e-6``.
            eps_inside (bool): As in :func:`l2_norm`. Default: ``False``.
            dtype (Dtype, optional): The outputs' dtype, one of the three.
              Default: that of each input.
            stream (StreamOrDevice): Stream or device.

        Returns:
            list(array): The normalized inputs, in order, of their shapes.

        Raises:
            ValueError: If there are no arrays or more than four, ``scales`` are
              not as many, an argument's dtype or shape is not as above, or
              ``eps`` is negative.
      )pbdoc");

  m.def(
      "layer_norm",
      &layer_norm,
      "x"_a,
      "weight"_a.none() = nb::none(),
      "bias"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "rounding"_a = nb::none(),
      "scale"_a = nb::none(),
      "shift"_a = nb::none(),
      "activation"_a = nb::none(),
      "dtype"_a = nb::none(),
      "axis"_a = -1,
      "stream"_a = nb::none(),
      nb::sig(
          "def layer_norm(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, rounding: typing.Literal[\"early\", \"late\"] | None = None, scale: mlx.core.array | float | None = None, shift: mlx.core.array | float | None = None, activation: typing.Literal[\"silu\", \"sigmoid\", \"gelu\", \"relu2\"] | None = None, dtype: mlx.core.Dtype | None = None, axis: int = -1, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Layer normalization over the last axis, or over ``axis``.

        .. math::

            y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} (w + w_0) + b

        where :math:`w_0` is the ``weight_offset``. Sums, products and the
        square root are computed in float32. The mean is corrected for its own
        rounding, so a mean far larger than the standard deviation does not
        reduce accuracy. The positional arguments are those of
        :func:`mlx.core.fast.layer_norm`.

        With a ``scale`` or a ``shift`` the result is :math:`y (1 + s) + t`, as in
        an adaptive layer norm (adaLN). Rounding early it is bit-identical to
        those ops of MLX after this norm; late, it is rounded once. With an
        ``activation`` :math:`a` the result is :math:`a(y)`, likewise: those of
        :func:`rms_norm`.

        Args:
            x (array): Input of shape ``[..., D]``, float32, float16 or
              bfloat16.
            weight (array, optional): A weight of shape ``[D]``, of any of the
              three dtypes. If ``None`` the result is not scaled.
            bias (array, optional): Added to the result, of shape ``[D]`` and
              any of the three dtypes. If ``None`` nothing is added.
            eps (float): Added to the variance. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to ``weight`` in float32. Default:
              ``0.0``.
            rounding (str, optional): When the normalized value is rounded to
              the output's dtype: ``"early"``, before weight and bias are
              applied and again after them, or ``"late"``, only at the end.
              Default: ``"early"``, or ``"late"`` if ``weight_offset`` is not
              zero.
            scale (array or float, optional): The result is multiplied by
              ``1 + scale``: a number, in the output's dtype, or an array of any
              of the three dtypes that broadcasts to ``x``, as MLX broadcasts,
              and has its last axis. One for each sample of ``[B, L, D]`` is
              ``[B, 1, D]``. Default: ``None``.
            shift (array or float, optional): Added after that; like ``scale``. Default:
              ``None``.
            activation (str, optional): ``"silu"``, ``"sigmoid"``, ``"gelu"`` or
              ``"relu2"``, of the result, without a ``scale`` or ``shift``.
              Default: ``None``.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            axis (int): The axis that is normalized: ``1`` for channels-first
              arrays ``[B, C, H, W]``, whose ``weight`` and ``bias`` have shape
              ``[C]``. The result is row-contiguous. An axis other than the last
              one is taken without a ``scale`` or ``shift``. Default: ``-1``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, ``axis`` is out of range, there
              is a ``weight_offset`` and no ``weight``, or a ``scale`` or
              ``shift`` and an ``activation`` or another ``axis`` than the last
              one.

        Example:
            >>> x = mx.array([1.0, 2.0, 4.0], mx.float16)
            >>> w, b = mx.array([3.0, 3.0, 3.0]), mx.array([0.1, 0.1, 0.1])
            >>> mlx_norms.layer_norm(x, w, b)
            array([-3.10742, -0.702148, 4.10938], dtype=float16)
            >>> mlx_norms.layer_norm(x, w, b, rounding="late")
            array([-3.10742, -0.70166, 4.10938], dtype=float16)
            >>> mlx_norms.layer_norm(x, w, b, dtype=mx.float32)
            array([-3.10713, -0.701781, 4.10891], dtype=float32)
            >>> scale = mx.array([[0.0], [1.0]]) + mx.zeros((2, 3))
            >>> mlx_norms.layer_norm(mx.stack([x, x]), scale=scale)
            array([[-1.06934, -0.267334, 1.33594],
                   [-2.13867, -0.534668, 2.67188]], dtype=float16)
      )pbdoc");

  m.def(
      "head_rms_norm",
      &head_rms_norm,
      "x"_a,
      "weight"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "rounding"_a = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def head_rms_norm(x: mlx.core.array, weight: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, rounding: typing.Literal[\"early\", \"late\"] | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        RMS norm of each attention head, with one weight for all or one each.

        The formula is that of :func:`rms_norm`, over the last axis, of length
        ``head_dim``.

        Args:
            x (array): Input of shape ``[..., heads, head_dim]``, float32,
              float16 or bfloat16.
            weight (array, optional): A weight of shape ``[head_dim]`` or
              ``[heads, head_dim]``, of any of the three dtypes. Default:
              ``None``, the result is not scaled.
            eps (float): Added to the mean square. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to ``weight`` in float32. Default:
              ``0.0``.
            rounding (str, optional): ``"early"`` or ``"late"``, as in
              :func:`rms_norm`.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``eps``
              is negative, or there is a ``weight_offset`` and no ``weight``.
      )pbdoc");

  m.def(
      "head_layer_norm",
      &head_layer_norm,
      "x"_a,
      "weight"_a = nb::none(),
      "bias"_a = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "rounding"_a = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def head_layer_norm(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, rounding: typing.Literal[\"early\", \"late\"] | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Layer norm of each attention head, with parameters for all or one each.

        The formula is that of :func:`layer_norm`, over the last axis, of length
        ``head_dim``.

        Args:
            x (array): Input of shape ``[..., heads, head_dim]``, float32,
              float16 or bfloat16.
            weight (array, optional): A weight of shape ``[head_dim]`` or
              ``[heads, head_dim]``, of any of the three dtypes. Default:
              ``None``, the result is not scaled.
            bias (array, optional): A bias, likewise; one for each head also
              beside one weight for all. Default: ``None``.
            eps (float): Added to the variance. Not negative. Default: ``1e-5``.
            weight_offset (float): Added to ``weight`` in float32. Default:
              ``0.0``.
            rounding (str, optional): ``"early"`` or ``"late"``, as in
              :func:`rms_norm`.
            dtype (Dtype, optional): The output's dtype, one of the three.
              Default: that of ``x``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``eps``
              is negative, or there is a ``weight_offset`` and no ``weight``.
      )pbdoc");

  m.def(
      "qk_norm",
      &qk_norm,
      "q"_a,
      "k"_a,
      "q_weight"_a.none() = nb::none(),
      "k_weight"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "weight_offset"_a = 0.0f,
      "rounding"_a = nb::none(),
      "dtype"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def qk_norm(q: mlx.core.array, k: mlx.core.array, q_weight: mlx.core.array | None = None, k_weight: mlx.core.array | None = None, eps: float = 1e-5, *, weight_offset: float = 0.0, rounding: typing.Literal[\"early\", \"late\"] | None = None, dtype: mlx.core.Dtype | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]"),
      R"pbdoc(
        RMS norm of each query head and each key head, in one launch.

        Equivalent to :func:`head_rms_norm` of ``q`` and of ``k``. The numbers
        of heads may differ, as in grouped-query attention.

        Args:
            q (array): Queries of shape ``[..., q_heads, head_dim]``, float32,
              float16 or bfloat16.
            k (array): Keys of shape ``[..., k_heads, head_dim]``, of the same
              dtype.
            q_weight (array, optional): A weight of shape ``[head_dim]`` or
              ``[q_heads, head_dim]``, of any of the three dtypes.
            k_weight (array, optional): Likewise for ``k``. Both weights must be
              given, or neither. Default: ``None``.
            eps (float): Added to the mean square. Not negative. Default:
              ``1e-5``.
            weight_offset (float): Added to both weights in float32. Default:
              ``0.0``.
            rounding (str, optional): ``"early"`` or ``"late"``, as in
              :func:`rms_norm`.
            dtype (Dtype, optional): The outputs' dtype, one of the three.
              Default: that of ``q`` and ``k``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            tuple(array, array): The normalized queries and keys, of the shapes
            of ``q`` and ``k``.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``eps``
              is negative, one weight is given without the other, or there is a
              ``weight_offset`` and no weight.
      )pbdoc");
}

} // namespace mlx_norms
