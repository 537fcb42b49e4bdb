// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/sandwich.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/float16.h"
#include "csrc/cpu/settings.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/nodes.h"

namespace mlx_norms {

namespace {

// A float16 sum within its range; the derivative of what saturates is zero.
array saturate(const array& sum, mx::Stream s) {
  auto max = array(kFloat16Max, mx::float16);
  auto bounded = mx::clip(sum, mx::negative(max, s), max, s);
  auto saturated = mx::greater_equal(mx::abs(sum, s), max, s);
  return mx::where(saturated, mx::stop_gradient(bounded, s), sum, s);
}

// {normalized, sum} as two norms, each made by norm(spec, dtype, inputs,
// stream).
template <typename F>
Arrays in_two_norms(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream s,
    F norm) {
  SandwichInputs in(spec, inputs.data());
  auto sum_dtype = in.sum_dtype();
  auto then = [&](NormSpec of, NormInputs inputs) {
    Arrays arrays;
    inputs.append_to(arrays);
    return norm(of, dtype, std::move(arrays), s);
  };
  auto n_dtype = spec.late() ? mx::float32 : in.x.dtype();
  Arrays of_x;
  NormInputs(in.x, nullptr, in.post_weight, nullptr).append_to(of_x);
  auto n = norm(spec.norm_of_x(), n_dtype, std::move(of_x), s)[0];
  auto next = spec.norm_of_sum();
  if (mx::result_type(n, in.residual) == sum_dtype) {
    next.residual = true;
    next.clamp = spec.clamp;
    return then(next, {n, &in.residual, in.weight, nullptr});
  }
  auto h = mx::astype(mx::add(in.residual, n, s), sum_dtype, s);
  if (spec.clamp && sum_dtype == mx::float16) {
    h = saturate(h, s);
  }
  return {then(next, {h, nullptr, in.weight, nullptr})[0], h};
}

// By kernels that can be trusted.
Function
two_norms(const SandwichSpec& spec, mx::Dtype dtype, mx::Stream stream) {
  return [=](const Arrays& inputs) {
    return in_two_norms(spec, dtype, inputs, stream, make_norm);
  };
}

// Whether one launch sums as two do. A GPU sums a row of 16 bits in another
// order than one of 32, of which there may be one of each; rounding early, the
// result would not be that of two norms.
bool sums_alike(const SandwichSpec& spec, const SandwichInputs& in) {
  return spec.late() || in.x.itemsize() == mx::size_of(in.sum_dtype());
}

} // namespace

NormSpec SandwichSpec::norm_of_x() const {
  return {
      .weight = post_weight,
      .rounding = rounding,
      .weight_offset = post_weight ? weight_offset : 0.0f,
      .eps = eps};
}

NormSpec SandwichSpec::norm_of_sum() const {
  return {
      .weight = weight,
      .rounding = rounding,
      .weight_offset = weight ? weight_offset : 0.0f,
      .eps = eps};
}

Arrays SandwichInputs::arrays() const {
  Arrays all{x, residual};
  for (auto* a : {post_weight, weight}) {
    if (a) {
      all.push_back(*a);
    }
  }
  return all;
}

Arrays fallback_norm_add_norm(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  return in_two_norms(spec, dtype, inputs, stream, fallback_norms);
}

Arrays norm_add_norm_node(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<NormAddNorm>(stream, spec, dtype);
  auto shapes = node->output_shapes(inputs);
  auto sum_dtype = SandwichInputs(spec, inputs.data()).sum_dtype();
  return array::make_arrays(
      std::move(shapes), {dtype, sum_dtype}, std::move(node), inputs);
}

Arrays make_norm_add_norm(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  auto backend = backend_of(stream);
  if (backend == Backend::Cpu) {
    cpu::check_settings();
  } else if (!sums_alike(spec, SandwichInputs(spec, inputs.data()))) {
    return two_norms(spec, dtype, stream)(inputs);
  }
  auto kernel_agrees = [&] { return agrees(spec, dtype, inputs, stream); };
  if (!runs_kernels(stream, kernel_agrees)) {
    return fallback_norm_add_norm(spec, dtype, inputs, stream);
  }
  return norm_add_norm_node(spec, dtype, std::move(inputs), stream);
}

Arrays NormAddNorm::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = two_norms(spec_, dtype_, stream());
  return jvp_of(f, primals, tangents, argnums);
}

std::pair<Arrays, std::vector<int>> NormAddNorm::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  bool weights_batched =
      std::any_of(axes.begin() + 2, axes.end(), [](int a) { return a >= 0; });
  if (weights_batched) {
    auto f = two_norms(spec_, dtype_, stream());
    return with_leading_axes(mx::vmap(f, axes)(inputs));
  }
  auto batch =
      with_leading_batch({inputs[0], inputs[1]}, {axes[0], axes[1]}, stream());
  batch.insert(batch.end(), inputs.begin() + 2, inputs.end());
  return with_leading_axes(
      norm_add_norm_node(spec_, dtype_, std::move(batch), stream()));
}

bool NormAddNorm::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const NormAddNorm&>(other);
  return spec_ == o.spec_ && dtype_ == o.dtype_ && merging_.into(o.merging_);
}

void NormAddNorm::check_shapes(const Arrays& inputs) const {
  SandwichInputs in(spec_, inputs.data());
  check_same_shape(name(), "residual", in.residual, in.x);
  if (in.post_weight) {
    check_vector(name(), "post_weight", *in.post_weight, in.x);
  }
  if (in.weight) {
    check_vector(name(), "weight", *in.weight, in.x);
  }
}

std::vector<mx::Shape> NormAddNorm::output_shapes(const Arrays& inputs) {
  return {inputs[0].shape(), inputs[0].shape()};
}

} // namespace mlx_norms
