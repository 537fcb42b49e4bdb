// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "csrc/common/checks.h"
#include "csrc/rope/ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

// Not given is an ellipsis: a base that is given beside freqs is refused.
using Base = std::optional<std::variant<float, nb::ellipsis>>;

std::optional<float> base_of(const Base& base, bool has_freqs) {
  constexpr float kDefault = 10000.0f;
  auto* number = base ? std::get_if<float>(&*base) : nullptr;
  if (number) {
    return *number;
  }
  return base && !has_freqs ? std::optional(kDefault) : std::nullopt;
}

std::variant<int, array> offset_of(const char* op, const Offset& offset) {
  if (std::holds_alternative<bool>(offset)) {
    refuse(op, "offset must be an integer but is bool.");
  }
  if (auto* number = std::get_if<int>(&offset)) {
    return *number;
  }
  return std::get<array>(offset);
}

} // namespace

void bind_rope(nb::module_& m) {
  m.def(
      "norm_rope",
      [](const array& x,
         const array* weight,
         float eps,
         std::optional<int> dims,
         bool traditional,
         const Base& base,
         float scale,
         const Offset& offset,
         const array* freqs,
         float weight_offset,
         bool rope_first,
         bool head_major,
         std::optional<std::string> rounding,
         mx::StreamOrDevice stream) {
        return norm_rope(
            x,
            weight,
            {.eps = eps,
             .dims = dims,
             .traditional = traditional,
             .base = base_of(base, freqs),
             .scale = scale,
             .offset = offset_of("norm_rope", offset),
             .freqs = freqs,
             .weight_offset = weight_offset,
             .rope_first = rope_first,
             .head_major = head_major,
             .rounding = std::move(rounding),
             .stream = stream});
      },
      "x"_a,
      "weight"_a.none(),
      "eps"_a = 1e-5f,
      "dims"_a = nb::none(),
      nb::kw_only(),
      "traditional"_a = false,
      "base"_a.none() = nb::ellipsis(),
      "scale"_a = 1.0f,
      "offset"_a = 0,
      "freqs"_a.none() = nb::none(),
      "weight_offset"_a = 0.0f,
      "rope_first"_a = false,
      "head_major"_a = true,
      "rounding"_a = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def norm_rope(x: mlx.core.array, weight: mlx.core.array | None, eps: float = 1e-5, dims: int | None = None, *, traditional: bool = False, base: float | None = 10000.0, scale: float = 1.0, offset: int | mlx.core.array = 0, freqs: mlx.core.array | None = None, weight_offset: float = 0.0, rope_first: bool = False, head_major: bool = True, rounding: typing.Literal[\"early\", \"late\"] | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        RMS norm of each head, and a rotary embedding, in one launch.

        .. math::

            n = \frac{x}{\sqrt{E[x^2] + \epsilon}} (w + w_0), \quad
            \theta_{l,i} = s (l + o) \beta^{-2 i / d}

        .. math::

            y_i = n_i \cos \theta_{l,i} - n_j \sin \theta_{l,i}, \quad
            y_j = n_i \sin \theta_{l,i} + n_j \cos \theta_{l,i}

        for the token ``l`` and each ``i < d / 2``, with ``d`` the ``dims``,
        ``s`` the ``scale``, ``o`` the ``offset`` and :math:`\beta` the
        ``base``; ``j`` is ``i + d / 2``. Equivalent to :func:`head_rms_norm`,
        ``transpose(0, 2, 1, 3)`` and ``mx.fast.rope``.

        Args:
            x (array): Input of shape ``[B, L, H, D]``, float32, float16 or
              bfloat16. Strided arrays, such as a part of packed queries, keys
              and values, are read in place.
            weight (array, optional): A weight of shape ``[D]`` or ``[H, D]``,
              of any of the three dtypes. If ``None`` the norm is not scaled.
            eps (float): Added to the mean square. Not negative. Default:
              ``1e-5``.
            dims (int, optional): How many of the first elements of a head are
              rotated, even; the others are normalized alone. Default: ``D``.
            traditional (bool): Rotate elements that adjoin: they are ``2 i``
              and ``2 i + 1``. Default: ``False``.
            base (float, optional): The base of the angles. ``None`` with
              ``freqs``. Default: ``10000.0`` without ``freqs``.
            scale (float): Multiplies positions. Default: ``1.0``.
            offset (int or array): The first token's position: a number, or an
              array of integers, a scalar or of shape ``[1]`` or ``[B]``. May be
              negative. Default: ``0``.
            freqs (array, optional): Of shape ``[dims / 2]``: positions are
              divided by these in place of powers of the base.
            weight_offset (float): Added to ``weight`` in float32. Default:
              ``0.0``.
            rope_first (bool): Rotate, and then normalize. Default: ``False``.
            head_major (bool): Whether the result has shape ``[B, H, L, D]``,
              else that of ``x``. Default: ``True``.
            rounding (str, optional): ``"early"``: the norm is rounded to the
              dtype as by :func:`rms_norm` before it is rotated (or the rotated
              ``x`` before its norm), and on the CPU each step of the rotation,
              too, as by ``mx.fast.rope``. ``"late"``: only the result is.
              Default: ``"early"``, or ``"late"`` with a ``weight_offset``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The result, of ``x``'s dtype.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``eps``
              is negative, there are both of ``base`` and ``freqs`` or neither,
              or there is a ``weight_offset`` and no weight; also by ``vjp`` for
              ``offset`` or ``freqs``.
      )pbdoc");

  def_forms(
      m,
      "qk_norm_rope",
      {"def qk_norm_rope(q: mlx.core.array, k: mlx.core.array, q_weight: mlx.core.array | None, k_weight: mlx.core.array | None, eps: float = 1e-5, dims: int | None = None, *, traditional: bool = False, base: float | None = 10000.0, scale: float = 1.0, offset: int | mlx.core.array = 0, freqs: mlx.core.array | None = None, v: None = None, q_scale: float = 1.0, weight_offset: float = 0.0, rope_first: bool = False, head_major: bool = True, rounding: typing.Literal[\"early\", \"late\"] | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array]",
       "def qk_norm_rope(q: mlx.core.array, k: mlx.core.array, q_weight: mlx.core.array | None, k_weight: mlx.core.array | None, eps: float = 1e-5, dims: int | None = None, *, traditional: bool = False, base: float | None = 10000.0, scale: float = 1.0, offset: int | mlx.core.array = 0, freqs: mlx.core.array | None = None, v: mlx.core.array, q_scale: float = 1.0, weight_offset: float = 0.0, rope_first: bool = False, head_major: bool = True, rounding: typing.Literal[\"early\", \"late\"] | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array, mlx.core.array]",
       "def qk_norm_rope(q: mlx.core.array, k: mlx.core.array, q_weight: mlx.core.array | None, k_weight: mlx.core.array | None, eps: float = 1e-5, dims: int | None = None, *, traditional: bool = False, base: float | None = 10000.0, scale: float = 1.0, offset: int | mlx.core.array = 0, freqs: mlx.core.array | None = None, v: mlx.core.array | None = None, q_scale: float = 1.0, weight_offset: float = 0.0, rope_first: bool = False, head_major: bool = True, rounding: typing.Literal[\"early\", \"late\"] | None = None, stream: mlx.core.StreamOrDevice = None) -> tuple[mlx.core.array, mlx.core.array] | tuple[mlx.core.array, mlx.core.array, mlx.core.array]"},
      R"pbdoc(
        :func:`norm_rope` of queries and of keys, in one launch.

        The numbers of heads may differ, as in grouped-query attention. All
        options but these are those of :func:`norm_rope`.

        Args:
            q (array): Queries of shape ``[B, L, q_heads, D]``, float32, float16
              or bfloat16.
            k (array): Keys of shape ``[B, L, k_heads, D]``, of the same dtype.
            q_weight (array, optional): A weight of shape ``[D]`` or
              ``[q_heads, D]``, of any of the three dtypes.
            k_weight (array, optional): Likewise for ``k``. Both weights must be
              given, or neither.
            v (array, optional): Values of shape ``[B, L, v_heads, D]``, of the
              same dtype: normalized without a weight and not rotated. Default:
              ``None``.
            q_scale (float): Multiplies the norm of ``q``; rounding early it is
              rounded to the dtype, and the product, too. Default: ``1.0``.

        Returns:
            tuple(array, array) or tuple(array, array, array): The results of
            ``q``, ``k`` and, if it is given, ``v``, of their dtype.

        Raises:
            ValueError: As :func:`norm_rope`, or if one weight is given without
              the other.
      )pbdoc",
      [](const array& q,
         const array& k,
         const array* q_weight,
         const array* k_weight,
         float eps,
         std::optional<int> dims,
         bool traditional,
         const Base& base,
         float scale,
         const Offset& offset,
         const array* freqs,
         const array* v,
         float q_scale,
         float weight_offset,
         bool rope_first,
         bool head_major,
         std::optional<std::string> rounding,
         mx::StreamOrDevice stream) {
        auto outputs = qk_norm_rope(
            q,
            k,
            q_weight,
            k_weight,
            v,
            {.eps = eps,
             .dims = dims,
             .traditional = traditional,
             .base = base_of(base, freqs),
             .scale = scale,
             .offset = offset_of("qk_norm_rope", offset),
             .freqs = freqs,
             .q_scale = q_scale,
             .weight_offset = weight_offset,
             .rope_first = rope_first,
             .head_major = head_major,
             .rounding = std::move(rounding),
             .stream = stream});
        return v ? nb::make_tuple(outputs[0], outputs[1], outputs[2])
                 : nb::make_tuple(outputs[0], outputs[1]);
      },
      "q"_a,
      "k"_a,
      "q_weight"_a.none(),
      "k_weight"_a.none(),
      "eps"_a = 1e-5f,
      "dims"_a = nb::none(),
      nb::kw_only(),
      "traditional"_a = false,
      "base"_a.none() = nb::ellipsis(),
      "scale"_a = 1.0f,
      "offset"_a = 0,
      "freqs"_a.none() = nb::none(),
      "v"_a.none() = nb::none(),
      "q_scale"_a = 1.0f,
      "weight_offset"_a = 0.0f,
      "rope_first"_a = false,
      "head_major"_a = true,
      "rounding"_a = nb::none(),
      "stream"_a = nb::none());
}

} // namespace mlx_norms
