// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
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
        Layer norm over the last axis by a rung of the ladder, on a GPU.

        .. math::

            y = \frac{x - E[x]}{\sqrt{Var[x] + \epsilon}} w + b

        The rungs are for study, as courses on GPU kernels climb from one to the
        next: :data:`mlx_norms.ladders.LAYER_NORM` says what each fixes. They
        follow `sshkhr/metal-layernorm-torch
        <https://github.com/sshkhr/metal-layernorm-torch>`_, here right for any
        size, and compute in float32 to the end. Derivatives are those of
        :func:`mlx_norms.layer_norm`, which is the last rung, ``"ours"``, as it
        is without options.

        Args:
            x (array): Input of shape ``[..., D]``, of a dtype that the rung
              takes: float32, or for ``"welford"`` float16, too.
            weight (array, optional): A weight of shape ``[D]``, of ``x``'s
              dtype. If ``None`` the result is not scaled.
            bias (array, optional): Added to the result, of shape ``[D]`` and
              ``x``'s dtype. If ``None`` nothing is added.
            eps (float): Added to the variance. Not negative. Default:
              ``1e-5``.
            rung (str): One of :data:`mlx_norms.ladders.LAYER_NORM` by its name.
              Default: ``"simd"``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The normalized input, of ``x``'s shape and dtype.

        Raises:
            ValueError: If an argument's dtype or shape is not as above, ``x``
              has no axis, ``eps`` is negative, there is no such ``rung``, or
              one but ``"ours"`` is to run on the CPU.
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
        Matrix multiplication by a rung of the ladder, on a GPU.

        .. math::

            c_{ij} = \sum_k a_{ik} b_{kj}

        The axes of ``a`` and ``b`` are those of :func:`mlx_norms.matmul`, and
        they broadcast alike.

        The ladder is for learning: :data:`mlx_norms.ladders.SGEMM` says what
        each rung fixes, and the last is far from what MLX reaches. Its rungs
        are those of `vietfood/gemm_metal
        <https://github.com/vietfood/gemm_metal>`_, here right for any size.
        They sum products in float32, in the order of :math:`k` (on Metal,
        ``tile_simdgroup`` by blocks of 8). Gradients are products by the same
        kernel.

        Args:
            a (array): Input of shape ``[..., M, K]`` or ``[K]``, float32.
            b (array): Input of shape ``[..., K, N]`` or ``[K]``, float32.
            rung (str): One of :data:`mlx_norms.ladders.SGEMM` by its name:
              ``"naive"``, ``"tile_16"``, ``"tile_32"``, ``"tile_threads"`` or
              ``"tile_simdgroup"``. Default: ``"tile_16"``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The product, of shape ``[..., M, N]``.

        Raises:
            ValueError: If ``a`` or ``b`` has no axis, they do not fit each
              other or are not float32, there is no such ``rung``, or it is to
              run on the CPU.
      )pbdoc");
}

} // namespace mlx_norms
