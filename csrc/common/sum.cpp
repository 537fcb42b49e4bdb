// Copyright © 2026 mlx_norms contributors

#include "csrc/common/sum.h"

#include <cstring>
#include <numeric>

#include "csrc/common/batch.h"
#include "csrc/common/of_mlx.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"

namespace mlx_norms {

namespace {

// MLX's primitive for a sum whose axes stay, of shapes that the trace does not
// know.
class Sum : public OfMlx {
 public:
  Sum(mx::Stream stream,
      std::shared_ptr<Primitive> of_mlx,
      std::vector<int> axes)
      : OfMlx(stream, std::move(of_mlx)),
        axes_(std::move(axes)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    if (take_input(inputs, outputs)) {
      return;
    }
    if (inputs[0].size() == 0) {
      auto& out = outputs[0];
      out.set_data(mx::allocator::malloc(out.nbytes()));
      std::memset(out.data<char>(), 0, out.nbytes());
      return;
    }
    OfMlx::eval_cpu(inputs, outputs);
  }
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override {
    if (!take_input(inputs, outputs)) {
      OfMlx::eval_gpu(inputs, outputs);
    }
  }

  Arrays jvp(const Arrays&, const Arrays& tangents, const std::vector<int>&)
      override {
    return {sum_over(tangents[0], axes_, /* keepdims= */ true, stream())};
  }
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>&,
      const Arrays&) override {
    return {mx::broadcast_arrays({cotangents[0], primals[0]}, stream())[0]};
  }
  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    auto a = with_leading_axis(inputs[0], axes[0], stream());
    auto after = axes_;
    for (auto& axis : after) {
      axis += 1;
    }
    return with_leading_axes(
        {sum_over(a, after, /* keepdims= */ true, stream())});
  }

  DEFINE_NAME(mlx_norms::Sum)
  bool is_equivalent(const Primitive& other) const override {
    return axes_ == static_cast<const Sum&>(other).axes_;
  }

 private:
  // If there is nothing to add up.
  bool take_input(const Arrays& inputs, Arrays& outputs) {
    bool is_input = inputs[0].shape() == outputs[0].shape();
    if (is_input) {
      outputs[0].copy_shared_buffer(inputs[0]);
    }
    return is_input;
  }

  std::vector<int> axes_; // none is negative
};

// MLX's primitive for a broadcast to axes that the trace does not know.
class LeadingAxes : public OfMlx {
 public:
  using OfMlx::OfMlx;

  // What it is like has no derivative: MLX stops its gradient.
  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>&) override {
    return {with_axes_of(tangents[0], primals[1], stream())};
  }
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>&,
      const Arrays&) override {
    const auto& cotangent = cotangents[0];
    std::vector<int> leading(cotangent.ndim() - primals[0].ndim());
    std::iota(leading.begin(), leading.end(), 0);
    return {
        leading.empty()
            ? cotangent
            : sum_over(cotangent, leading, /* keepdims= */ false, stream())};
  }
  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    return of_mlx_->vmap(inputs, axes);
  }

  DEFINE_NAME(mlx_norms::LeadingAxes)
  bool is_equivalent(const Primitive&) const override {
    return true;
  }
};

} // namespace

array with_axes_of(const array& a, const array& like, mx::Stream s) {
  auto wide = mx::broadcast_arrays({a, like}, s)[0];
  if (wide.id() == a.id() || wide.inputs().size() == 1) {
    return wide; // the trace knows the shape
  }
  auto node = std::make_shared<LeadingAxes>(s, wide.primitive_ptr());
  return array(wide.shape(), wide.dtype(), std::move(node), wide.inputs());
}

array sum_over(
    const array& a,
    const std::vector<int>& axes,
    bool keepdims,
    mx::Stream s) {
  auto sums = mx::sum(a, axes, /* keepdims= */ true, s);
  bool adds = sums.id() != a.id();
  if (a.size() == 0 && !a.is_tracer()) {
    sums = mx::zeros(sums.shape(), sums.dtype(), s);
  } else if (adds && (a.is_tracer() || sums.shape() == a.shape())) {
    auto from_start = axes;
    for (auto& axis : from_start) {
      axis += axis < 0 ? a.ndim() : 0;
    }
    auto node = std::make_shared<Sum>(s, sums.primitive_ptr(), from_start);
    sums = array(sums.shape(), sums.dtype(), std::move(node), sums.inputs());
  }
  return keepdims || axes.empty() ? sums : mx::squeeze(sums, axes, s);
}

array sum_over(const array& a, int axis, mx::Stream s) {
  return sum_over(a, std::vector<int>{axis}, /* keepdims= */ true, s);
}

array mean_over(const array& a, int axis, mx::Stream s) {
  // The count has no derivative, and MLX no rule for its derivative.
  auto over_count = mx::number_of_elements(
      mx::stop_gradient(a, s), {axis}, /* inverted= */ true, a.dtype(), s);
  return mx::multiply(sum_over(a, axis, s), over_count, s);
}

} // namespace mlx_norms
