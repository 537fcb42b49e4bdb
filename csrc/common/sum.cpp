// Copyright © 2026 mlx_norms contributors

#include "csrc/common/sum.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "csrc/common/batch.h"
#include "csrc/common/of_mlx.h"
#include "csrc/common/pending.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"

namespace mlx_norms {

namespace {

// MLX's sum over the axes that the result has no more, which may be none.
class Reduction : public mx::Primitive {
 public:
  using Primitive::Primitive;

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& out = outputs[0];
    auto axes = added(inputs[0], out);
    if (axes.empty()) {
      out.copy_shared_buffer(inputs[0]);
    } else if (inputs[0].size() == 0) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
      std::memset(out.data<char>(), 0, out.nbytes());
    } else {
      of_mlx(inputs[0], axes)->eval_cpu({inputs[0]}, outputs);
    }
  }
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override {
    auto axes = added(inputs[0], outputs[0]);
    if (axes.empty()) {
      outputs[0].copy_shared_buffer(inputs[0]);
    } else {
      of_mlx(inputs[0], axes)->eval_gpu({inputs[0]}, outputs);
    }
  }

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>&,
      const Arrays&) override {
    return {with_axes_of(cotangents[0], primals[0], stream())};
  }

 private:
  static std::vector<int> added(const array& a, const array& out) {
    std::vector<int> axes;
    for (int i = 0; i < static_cast<int>(a.ndim()); ++i) {
      if (a.shape(i) != out.shape(i)) {
        axes.push_back(i);
      }
    }
    return axes;
  }
  std::shared_ptr<Primitive> of_mlx(
      const array& a,
      const std::vector<int>& axes) {
    return mx::sum(a, axes, /* keepdims= */ true, stream()).primitive_ptr();
  }
};

// Over axes that are given and stay.
class Sum : public Reduction {
 public:
  Sum(mx::Stream stream, std::vector<int> axes)
      : Reduction(stream),
        axes_(std::move(axes)) {}

  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override {
    auto shape = inputs[0].shape();
    for (int axis : axes_) {
      shape[axis] = 1;
    }
    return {shape};
  }

  Arrays jvp(const Arrays&, const Arrays& tangents, const std::vector<int>&)
      override {
    return {sum_over(tangents[0], axes_, /* keepdims= */ true, stream())};
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
  std::vector<int> axes_; // none is negative
};

// Over axes of which the second input has one element when the sum is made. The
// first `kept` axes are those of a batch.
class SumTo : public Reduction {
 public:
  SumTo(mx::Stream stream, int kept) : Reduction(stream), kept_(kept) {}

  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override {
    auto shape = inputs[0].shape();
    const auto& like = inputs[1].shape();
    std::copy(
        like.end() - (shape.size() - kept_), like.end(), shape.begin() + kept_);
    return {shape};
  }

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>&) override {
    return {sum_like(tangents[0], primals[1], kept_, stream())};
  }
  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    auto like =
        axes[1] > 0 ? mx::moveaxis(inputs[1], axes[1], 0, stream()) : inputs[1];
    if (axes[0] < 0) {
      return {{sum_like(inputs[0], like, kept_, stream())}, {-1}};
    }
    auto a = with_leading_axis(inputs[0], axes[0], stream());
    return with_leading_axes({sum_like(a, like, kept_ + 1, stream())});
  }

  DEFINE_NAME(mlx_norms::SumTo)
  bool is_equivalent(const Primitive& other) const override {
    return kept_ == static_cast<const SumTo&>(other).kept_;
  }

  static array
  sum_like(const array& a, const array& like, int kept, mx::Stream s) {
    auto node = std::make_shared<SumTo>(s, kept);
    // What it is like has no derivative.
    Arrays inputs{a, mx::stop_gradient(like, s)};
    auto shape = node->output_shapes(inputs)[0];
    return array(shape, a.dtype(), std::move(node), std::move(inputs));
  }

 private:
  int kept_;
};

// MLX's primitive for a broadcast, to the shape of other inputs, which have no
// derivative, if there are any: its own gradient is MLX's sum.
class Broadcast : public OfMlx {
 public:
  Broadcast(
      mx::Stream stream,
      std::shared_ptr<Primitive> of_mlx,
      mx::Shape shape)
      : OfMlx(stream, std::move(of_mlx)),
        shape_(std::move(shape)) {}

  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override {
    if (inputs.size() == 1) {
      return {shape_};
    }
    return of_mlx_->output_shapes(inputs);
  }
  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>&) override {
    auto inputs = primals;
    inputs[0] = tangents[0];
    auto shape = output_shapes(inputs)[0];
    auto node = std::make_shared<Broadcast>(stream(), of_mlx_, shape);
    auto dtype = tangents[0].dtype();
    return {array(shape, dtype, std::move(node), std::move(inputs))};
  }
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>&,
      const Arrays&) override {
    return {sum_to(cotangents[0], primals[0], stream())};
  }
  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    if (inputs.size() == 1) {
      // MLX's own adds the axis to its shape, which other nodes may share.
      auto a = with_leading_of(inputs[0], axes[0], shape_.size());
      auto shape = shape_;
      shape.insert(shape.begin(), a.shape(0));
      auto wide = mx::broadcast_to(a, shape, stream());
      bool is_wide = wide.id() != a.id();
      return with_leading_axes({is_wide ? as_ours(wide, stream()) : wide});
    }
    size_t ndim = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ndim = std::max(ndim, inputs[i].ndim() - (axes[i] >= 0));
    }
    Arrays aligned;
    for (size_t i = 0; i < inputs.size(); ++i) {
      aligned.push_back(
          axes[i] < 0 ? inputs[i] : with_leading_of(inputs[i], axes[i], ndim));
    }
    return with_leading_axes({broadcast(aligned, stream())});
  }

  DEFINE_NAME(mlx_norms::Broadcast)
  bool is_equivalent(const Primitive& other) const override {
    const auto& broadcast = static_cast<const Broadcast&>(other);
    return shape_ == broadcast.shape_ &&
        of_mlx_->is_equivalent(*broadcast.of_mlx_);
  }

  // The first array.
  static array broadcast(const Arrays& arrays, mx::Stream s) {
    auto wide = mx::broadcast_arrays(arrays, s)[0];
    return wide.id() == arrays[0].id() || wide.inputs().size() == 1
        ? wide // the trace knows the shape
        : as_ours(wide, s);
  }
  static array as_ours(const array& wide, mx::Stream s) {
    auto node =
        std::make_shared<Broadcast>(s, wide.primitive_ptr(), wide.shape());
    return array(wide.shape(), wide.dtype(), std::move(node), wide.inputs());
  }

 private:
  // Its mapped axis before as many others as the result has.
  array with_leading_of(array a, int axis, size_t ndim) {
    a = with_leading_axis(a, axis, stream());
    while (a.ndim() <= ndim) {
      a = mx::expand_dims(a, 1, stream());
    }
    return a;
  }

  mx::Shape shape_;
};

// `a` and what it is computed from, up to what `done` has, with our nodes in
// place of MLX's.
array with_our_nodes(
    const array& a,
    std::unordered_map<std::uintptr_t, array>& done,
    mx::Stream s) {
  if (auto found = done.find(a.id()); found != done.end()) {
    return found->second;
  }
  auto ours = a;
  if (is_pending(a)) {
    for (auto& input : ours.inputs()) {
      input = with_our_nodes(input, done, s);
    }
  }
  if (is_pending(a, "Sum")) {
    auto axes = static_cast<mx::Reduce&>(a.primitive()).state().second;
    ours = sum_over(a.inputs()[0], axes, /* keepdims= */ true, s);
  } else if (is_pending(a, "Broadcast")) {
    ours = Broadcast::as_ours(a, s);
  }
  done.insert({a.id(), ours});
  return ours;
}

} // namespace

array with_axes_of(const array& a, const array& like, mx::Stream s) {
  return Broadcast::broadcast({a, like}, s);
}

array sum_to(const array& a, const array& like, mx::Stream s) {
  int missing = static_cast<int>(a.ndim() - like.ndim());
  std::vector<int> leading(missing);
  std::iota(leading.begin(), leading.end(), 0);
  if (in_shapeless_trace(a)) {
    auto sums = SumTo::sum_like(a, expand_in_turn(like, leading, s), 0, s);
    return leading.empty() ? sums : mx::squeeze(sums, leading, s);
  }
  std::vector<int> kept;
  for (int i = 0; i < static_cast<int>(like.ndim()); ++i) {
    if (like.shape(i) == 1 && a.shape(missing + i) != 1) {
      kept.push_back(missing + i);
    }
  }
  auto sums = sum_over(a, kept, /* keepdims= */ true, s);
  return sum_over(sums, leading, /* keepdims= */ false, s);
}

Arrays for_any_size(
    Arrays outputs,
    std::initializer_list<const Arrays*> inputs,
    mx::Stream s) {
  bool empty = std::ranges::any_of(inputs, [](auto* arrays) {
    return std::ranges::any_of(
        *arrays, [](const array& a) { return a.size() == 0; });
  });
  if (!empty && !in_shapeless_trace((*inputs.begin())->front())) {
    return outputs;
  }
  std::unordered_map<std::uintptr_t, array> done;
  for (auto* arrays : inputs) {
    for (const auto& input : *arrays) {
      done.insert({input.id(), input});
    }
  }
  for (auto& out : outputs) {
    out = with_our_nodes(out, done, s);
  }
  return outputs;
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
    auto node = std::make_shared<Sum>(s, std::move(from_start));
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
