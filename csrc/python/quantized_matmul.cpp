// Copyright © 2026 mlx_norms contributors

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "csrc/linear/ops.h"
#include "csrc/python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

void bind_quantized_matmul(nb::module_& m) {
  m.def(
      "quantized_matmul",
      [](const array& x,
         const array& w,
         const array& scales,
         const array* biases,
         bool transpose,
         std::optional<int> group_size,
         std::optional<int> bits,
         std::string mode,
         const array* residual,
         mx::StreamOrDevice stream) {
        Quantization by{transpose, group_size, bits, std::move(mode)};
        return quantized_matmul(x, w, scales, biases, by, residual, stream);
      },
      "x"_a,
      "w"_a,
      "scales"_a,
      "biases"_a.none() = nb::none(),
      "transpose"_a = true,
      "group_size"_a = nb::none(),
      "bits"_a = nb::none(),
      "mode"_a = "affine",
      nb::kw_only(),
      "residual"_a.none() = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def quantized_matmul(x: mlx.core.array, w: mlx.core.array, scales: mlx.core.array, biases: mlx.core.array | None = None, transpose: bool = True, group_size: int | None = None, bits: int | None = None, mode: typing.Literal[\"affine\", \"mxfp4\", \"mxfp8\", \"nvfp4\"] = \"affine\", *, residual: mlx.core.array | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      R"pbdoc(
        Matrix multiplication with a quantized matrix, plus a residual.

        .. math::

            y = x W^\top + r, \quad
            W_{nk} = s_{ng} q_{nk} + b_{ng} \text{ for } k \text{ in group } g

        As :func:`mlx.core.quantized_matmul`. On a GPU, up to 16 rows of ``x``
        (on Metal 8, from Apple's generation 15 on 4) and a matrix of 4 or 8
        bits in groups of 32, 64 or 128 take one launch, which reads the matrix
        once, whatever the number of rows: on CUDA from compute capability 8.0
        on, if ``x``, ``scales``, ``biases`` and
        ``residual`` have one dtype, ``w`` two axes, and ``transpose`` is true.
        Sums are in float32, and a row's bits do not depend on the rows beside
        it. Everything else is MLX's product. In either case the product is
        rounded to its dtype before ``residual`` is added.

        Derivatives are those of MLX's product: in ``x``, ``residual``, and, in
        reverse mode, ``scales`` and ``biases``. :func:`mlx.core.vmap` maps ``x``
        and ``residual``.

        Args:
            x (array): Input of shape ``[..., K]``.
            w (array): The packed matrix, ``[N, K * bits / 32]``, or, if
              ``transpose`` is false, ``[K, N * bits / 32]``; uint32.
            scales (array): One per group of a row of ``w``, as
              :func:`mlx.core.quantize` returns them.
            biases (array, optional): Likewise, in the mode ``"affine"``.
            transpose (bool): Whether ``w`` is transposed. Default: ``True``.
            group_size (int, optional): The size of a group. Default: the
              mode's, 64 for ``"affine"``.
            bits (int, optional): The bits of an element. Default: the mode's, 4
              for ``"affine"``.
            mode (str): The quantization mode. Default: ``"affine"``.
            residual (array, optional): Added to the product, of its shape;
              float32, float16 or bfloat16.
            stream (StreamOrDevice): Stream or device.

        Returns:
            array: Of shape ``[..., N]``; its dtype is the one that the dtypes of
            ``x``, ``scales``, ``biases`` and ``residual`` promote to.

        Raises:
            ValueError: If ``residual`` has not the product's shape or another
              dtype, ``w``, ``scales`` or ``biases`` are mapped by vmap, or MLX's
              product refuses the other arguments.

        Example:
            >>> w, scales, biases = mx.quantize(mx.ones((2, 64)))
            >>> mlx_norms.quantized_matmul(mx.ones((1, 64)), w, scales, biases)
            array([[64, 64]], dtype=float32)
      )pbdoc");
}

} // namespace mlx_norms
