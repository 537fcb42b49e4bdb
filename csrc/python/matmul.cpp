// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "csrc/matmul/ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

void bind_matmul(nb::module_& m) {
  m.def(
      "matmul",
      &matmul,
      "a"_a,
      "b"_a,
      nb::kw_only(),
      "kernel"_a = "auto",
      "stream"_a = nb::none(),
      nb::sig(
          "def matmul(a: mlx.core.array, b: mlx.core.array, *, kernel: typing.Literal[\"auto\", \"gemv\", \"simdgroup_blocked\"] = \"auto\", stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Matrix multiplication, with our kernels on Metal and MLX's elsewhere.

        .. math::

            c_{ij} = \sum_k a_{ik} b_{kj}

        A 1-D ``a`` is a row and a 1-D ``b`` a column, whose axis the result
        does not have. Axes before the last two are batch axes, and broadcast.

        On Metal, ``"auto"`` chooses between two kernels that accumulate in
        float32: ``"gemv"`` for up to 8 rows of ``a`` or columns of ``b``, which
        reads the other operand once, and otherwise ``"simdgroup_blocked"``,
        which multiplies 8x8 blocks from tiles in threadgroup memory. Operands
        that are contiguous along one of the last two axes are not copied.
        Other dtypes and mixed dtypes go to MLX's matmul. Either kernel can be
        named on any GPU. Gradients are matmuls with the same ``kernel``, except
        that those of ``"gemv"`` choose between the two by shape.

        Args:
            a (array): Input of shape ``[..., M, K]`` or ``[K]``. If a kernel is
              named, float32, float16 or bfloat16.
            b (array): Input of shape ``[..., K, N]`` or ``[K]``. If a kernel is
              named, of the same dtype as ``a``.
            kernel (str): ``"auto"``, which on the CPU and CUDA is
              :func:`mlx.core.matmul`, or, on a GPU, ``"simdgroup_blocked"`` or
              ``"gemv"``. Default: ``"auto"``.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: The product, of shape ``[..., M, N]``.

        Raises:
            ValueError: If ``a`` or ``b`` has no axis, their shapes do not
              match, there is no such ``kernel``, or the named kernel does not
              accept their dtypes, is called on the CPU, or is ``"gemv"`` while
              ``a`` has more than 8 rows and ``b`` more than 8 columns.

        Example:
            >>> a = mx.array([[1.0, 2.0], [3.0, 4.0]])
            >>> mlx_norms.matmul(a, mx.array([1.0, 10.0]))
            array([21, 43], dtype=float32)
      )pbdoc");
}

} // namespace mlx_norms
