// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/mlx_product.h"

#include <algorithm>

#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/of_mlx.h"

namespace mlx_norms {

namespace {

const array* biases_of(const Arrays& inputs) {
  return inputs.size() > 3 ? &inputs[3] : nullptr;
}

// MLX's primitive, whose vmap is missing. Inputs: x, w, scales, [biases].
class MappedProduct : public OfMlx {
 public:
  MappedProduct(
      mx::Stream stream,
      std::shared_ptr<Primitive> of_mlx,
      Quantization by)
      : OfMlx(stream, std::move(of_mlx)),
        by_(std::move(by)) {}

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums) override {
    return argnums == std::vector<int>{0}
        ? Arrays{times(tangents[0], primals, by_)}
        : of_mlx_->jvp(primals, tangents, argnums);
  }

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override {
    auto other_way = by_;
    other_way.transpose = !by_.transpose;
    Arrays gradients;
    for (int i : argnums) {
      gradients.push_back(
          i == 0 ? times(cotangents[0], primals, other_way)
                 : of_mlx_->vjp(primals, cotangents, {i}, outputs)[0]);
    }
    return gradients;
  }

  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    check_unmapped(axes, 1);
    auto x = with_leading_axis(inputs[0], axes[0], stream());
    return with_leading_axes({times(x, inputs, by_)});
  }

  DEFINE_NAME(mlx_norms::MappedProduct)
  bool is_equivalent(const Primitive& other) const override {
    return of_mlx_->is_equivalent(
        *static_cast<const MappedProduct&>(other).of_mlx_);
  }

 private:
  array times(const array& x, const Arrays& inputs, const Quantization& by) {
    return mlx_product(
        x, inputs[1], inputs[2], biases_of(inputs), by, stream());
  }

  Quantization by_;
};

// MLX's addmm, whose vmap broadcasts a mapped bias to rows that are not mapped.
// Inputs: x, w, bias.
class MappedAddMM : public OfMlx {
 public:
  using OfMlx::OfMlx;

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums) override {
    return of_mlx_->jvp(primals, tangents, argnums);
  }

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override {
    return of_mlx_->vjp(primals, cotangents, argnums, outputs);
  }

  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    if (any_batched(axes, 0, 2)) {
      return of_mlx_->vmap(inputs, axes);
    }
    auto y = mx::matmul(inputs[0], inputs[1], stream());
    auto bias = with_leading_axis(inputs[2], axes[2], stream());
    return with_leading_axes({mx::add(y, bias, stream())});
  }

  DEFINE_NAME(mlx_norms::MappedAddMM)
  bool is_equivalent(const Primitive& other) const override {
    return of_mlx_->is_equivalent(
        *static_cast<const MappedAddMM&>(other).of_mlx_);
  }
};

bool any_traced(const Arrays& inputs) {
  return std::ranges::any_of(
      inputs, [](const array& a) { return a.is_tracer(); });
}

} // namespace

void check_unmapped(const std::vector<int>& axes, int first) {
  if (std::any_of(
          axes.begin() + first, axes.end(), [](int a) { return a >= 0; })) {
    refuse(
        "quantized_matmul",
        "vmap maps x and residual, but none of w, scales and biases.");
  }
}

array mlx_product(
    const array& x,
    const array& w,
    const array& scales,
    const array* biases,
    const Quantization& by,
    mx::Stream s) {
  if (x.ndim() == 1) { // whose rows MLX's CUDA kernels ask for
    auto row = mx::expand_dims(x, 0, s);
    return mx::squeeze(mlx_product(row, w, scales, biases, by, s), 0, s);
  }
  auto y = mx::quantized_matmul(
      x,
      w,
      scales,
      biases ? OptionalArray(*biases) : std::nullopt,
      by.transpose,
      by.group_size,
      by.bits,
      by.mode,
      s);
  if (!any_traced(y.inputs())) {
    return y;
  }
  auto node = std::make_shared<MappedProduct>(s, y.primitive_ptr(), by);
  return array(y.shape(), y.dtype(), std::move(node), y.inputs());
}

array mlx_addmm(
    const array& bias,
    const array& x,
    const array& w,
    mx::Stream s) {
  if (!any_traced({bias, x, w})) {
    return mx::addmm(bias, x, w, 1.0f, 1.0f, s);
  }
  if (x.ndim() == 1) {
    return mx::squeeze(mlx_addmm(bias, mx::expand_dims(x, 0, s), w, s), 0, s);
  }
  if (x.ndim() > 2 && bias.ndim() == 1) { // as MLX does inside
    mx::Shape before(x.shape().begin(), x.shape().end() - 1);
    auto rows = mx::flatten(x, 0, -2, s);
    return mx::unflatten(mlx_addmm(bias, rows, w, s), 0, before, s);
  }
  auto y = mx::addmm(bias, x, w, 1.0f, 1.0f, s);
  auto node = std::make_shared<MappedAddMM>(s, y.primitive_ptr());
  return array(y.shape(), y.dtype(), std::move(node), y.inputs());
}

} // namespace mlx_norms
