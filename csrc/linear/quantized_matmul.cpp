// Copyright © 2026 mlx_norms contributors

#include "csrc/common/checks.h"
#include "csrc/linear/checks.h"
#include "csrc/linear/mlx_product.h"
#include "csrc/linear/norm_linear.h"
#include "csrc/linear/ops.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "quantized_matmul";

// How the weight is stored, if it is as one launch may read it.
std::optional<Projection> readable(
    const array& x,
    const array& w,
    const array& scales,
    const array* biases,
    const Quantization& by) {
  constexpr int kGroupSize = 64, kBits = 4; // MLX's defaults
  Projection form{by.bits.value_or(kBits), by.group_size.value_or(kGroupSize)};
  if (by.mode != "affine" || !by.transpose || !biases || x.ndim() == 0 ||
      w.ndim() != 2 || w.dtype() != mx::uint32 ||
      (form.bits != 4 && form.bits != 8) || form.group_size <= 0) {
    return std::nullopt;
  }
  int length = x.shape(-1);
  mx::Shape groups{w.shape(0), length / form.group_size};
  bool fits = length % form.group_size == 0 && scales.shape() == groups &&
      biases->shape() == groups &&
      int64_t{w.shape(1)} * 32 == int64_t{length} * form.bits;
  return fits ? std::optional(form) : std::nullopt;
}

} // namespace

array quantized_matmul(const QuantizedMatmulArguments& a) {
  const auto &x = *a.x, &w = *a.w, &scales = *a.scales;
  auto *biases = a.biases, *residual = a.residual;
  Quantization by{a.transpose, a.group_size, a.bits, a.mode};
  auto s = mx::to_stream(a.stream);
  if (residual) {
    check_dtype(kOp, "residual", residual->dtype());
  }
  auto form = readable(x, w, scales, biases, by);
  if (!form) {
    auto y = mlx_product(x, w, scales, biases, by, s);
    if (residual) {
      check_added(kOp, *residual, y.shape());
      y = mx::add(y, *residual, s);
    }
    return y;
  }
  if (residual) {
    auto shape = x.shape();
    shape.back() = w.shape(0);
    check_added(kOp, *residual, shape);
  }
  QuantizedProduct product(*form, x, residual, w, scales, *biases);
  return make_norm_linear(product.spec, std::move(product.inputs), s)[0];
}

} // namespace mlx_norms
