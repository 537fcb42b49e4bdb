// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

using RungRow = std::tuple<std::string, std::string, std::vector<mx::Dtype>>;

std::vector<RungRow> rows(const std::vector<Rung>& rungs) {
  std::vector<RungRow> rows;
  for (const auto& rung : rungs) {
    rows.emplace_back(rung.name, rung.fixes, rung.dtypes);
  }
  return rows;
}

} // namespace

void bind_ladders(nb::module_& m) {
  m.def(
      "layer_norm_rungs",
      [] { return rows(layer_norm_rungs()); },
      "(name, fixes, dtypes) of each rung of layer norm, naive first.");
  m.def(
      "sgemm_rungs",
      [] { return rows(sgemm_rungs()); },
      "(name, fixes, dtypes) of each rung of SGEMM, naive first.");

  m.def(
      "layer_norm_by_rung",
      &layer_norm_by_rung,
      "x"_a,
      "weight"_a.none() = nb::none(),
      "bias"_a.none() = nb::none(),
      "eps"_a = 1e-5f,
      nb::kw_only(),
      "rung"_a = "simd",
      "stream"_a = nb::none(),
      nb::sig(
          "def layer_norm_by_rung(x: mlx.core.array, weight: mlx.core.array | None = None, bias: mlx.core.array | None = None, eps: float = 1e-5, *, rung: str = 'simd', stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Layer norm over the last axis with a rung of the ladder, on a GPU.

        .. math::

            y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} w + b

        The rungs are for study: :data:`mlx_norms.ladders.LAYER_NORM` says what
        each one fixes in the one before it. They follow
        `sshkhr/metal-layernorm-torch
        <https://github.com/sshkhr/metal-layernorm-torch>`_, but are correct for
        any size, and compute in float32 up to the result. Derivatives are those
        of :func:`mlx_norms.layer_norm`. The last rung, ``"ours"``, is
        :func:`mlx_norms.layer_norm` with its default options.

        Args:
            x (array): Input of shape ``[..., D]``, of a dtype that the rung
              accepts: float32, for ``"welford"`` also float16.
            weight (array, optional): A weight of shape ``[D]``, of ``x``'s
              dtype. If ``None`` the result is not scaled.
            bias (array, optional): Added to the result, of shape ``[D]`` and
              ``x``'s dtype. If ``None`` nothing is added.
            eps (float): Added to the variance. Not negative. Default:
              ``1e-5``.
            rung (str): The name of one of :data:`mlx_norms.ladders.LAYER_NORM`.
              Default: ``"simd"``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape and dtype.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, there is no such ``rung``, or
              a rung other than ``"ours"`` is called on the CPU.
      )pbdoc");

  m.def(
      "sgemm_by_rung",
      &sgemm_by_rung,
      "a"_a,
      "b"_a,
      nb::kw_only(),
      "rung"_a = "tile_16",
      "stream"_a = nb::none(),
      nb::sig(
          "def sgemm_by_rung(a: mlx.core.array, b: mlx.core.array, *, rung: str = 'tile_16', stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Matrix multiplication with a rung of the ladder, on a GPU.

        .. math::

            c_{ij} = \sum_k a_{ik} b_{kj}

        Shapes and broadcasting are as in :func:`mlx_norms.matmul`.

        The rungs are for study: :data:`mlx_norms.ladders.SGEMM` says what each
        one fixes in the one before it. The last is far slower than MLX's
        matmul. They follow `vietfood/gemm_metal
        <https://github.com/vietfood/gemm_metal>`_, but are correct for any
        size. They accumulate in float32, in the order of :math:`k` (on Metal,
        ``tile_simdgroup`` in blocks of 8). Gradients are matmuls with the same
        rung.

        Args:
            a (array): Input of shape ``[..., M, K]`` or ``[K]``, float32.
            b (array): Input of shape ``[..., K, N]`` or ``[K]``, float32.
            rung (str): The name of one of :data:`mlx_norms.ladders.SGEMM`:
              ``"naive"``, ``"tile_16"``, ``"tile_32"``, ``"tile_threads"`` or
              ``"tile_simdgroup"``. Default: ``"tile_16"``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The product, of shape ``[..., M, N]``.

        Raises:
            ValueError: If ``a`` or ``b`` has no axis, their shapes do not
              match, they are not float32, there is no such ``rung``, or it is
              called on the CPU.
      )pbdoc");
}

} // namespace mlx_norms
