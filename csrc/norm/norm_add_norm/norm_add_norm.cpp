// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/norm_add_norm/norm_add_norm.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/float16.h"
#include "csrc/common/self_check.h"
#include "csrc/norm/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/few_rows.h"
#include "csrc/norm/ops.h"
#include "csrc/op/node.h"

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
    const NormAddNormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream s,
    F norm) {
  NormAddNormInputs in(spec, inputs.data());
  auto sum_dtype = in.sum_dtype();
  auto n_dtype = spec.late() ? mx::float32 : in.x.dtype();
  auto n = norm(spec.norm(spec.post_weight), n_dtype, in.of_x().arrays(), s)[0];
  auto next = spec.norm(spec.weight);
  auto of_sum = in.of_sum(n);
  if (mx::result_type(n, in.residual) == sum_dtype) {
    next.operands = of_sum.present();
    next.number = spec.number;
    next.clamp = spec.clamp;
    return norm(next, dtype, of_sum.arrays(), s);
  }
  if (spec.is_factored()) {
    auto factor = in.factor ? *in.factor : array(float{spec.number});
    n = mx::multiply(n, mx::astype(factor, mx::float32, s), s);
  }
  auto h = mx::astype(mx::add(in.residual, n, s), sum_dtype, s);
  if (spec.clamp && sum_dtype == mx::float16) {
    h = saturate(h, s);
  }
  of_sum[kX] = &h;
  of_sum[kResidual] = of_sum[kFactor] = nullptr;
  return {norm(next, dtype, of_sum.arrays(), s)[0], h};
}

} // namespace

NormSpec NormAddNormSpec::norm(bool has_weight) const {
  NormSpec norm{.rounding = rounding, .eps = eps};
  norm.operands.set(kWeight, has_weight);
  norm.weight_offset = has_weight ? weight_offset : Number(0.0f);
  return norm;
}

Arrays NormAddNormInputs::arrays() const {
  Arrays all{x, residual};
  for (auto* a : {post_weight, weight, factor}) {
    if (a) {
      all.push_back(*a);
    }
  }
  return all;
}

void NormAddNormSpec::append_key(
    const Arrays& inputs,
    std::vector<int64_t>& numbers) const {
  for (int64_t number :
       {int64_t{inputs[0].shape(-1)},
        int64_t{post_weight},
        int64_t{weight},
        int64_t{factor},
        int64_t{way_of_factor(inputs)},
        int64_t{number != 1.0f},
        int64_t{clamp},
        int64_t{late()},
        int64_t{weight_offset != 0.0f}}) {
    numbers.push_back(number);
  }
}

NormAddNormSpec NormAddNormSpec::flags() const {
  auto spec = *this;
  spec.eps = 1e-5f;
  spec.weight_offset = weight_offset != 0.0f ? 1.0f : 0.0f;
  spec.number = number != 1.0f ? 0.75f : 1.0f;
  return spec;
}

int NormAddNormSpec::way_of_factor(const Arrays& inputs) const {
  return factor ? way_of(kFactor, inputs[2 + post_weight + weight], inputs[0])
                : kAsX;
}

// The weights come after two arrays of rows, and then a factor.
Arrays NormAddNormSpec::few_rows(
    const Arrays& inputs,
    int rows,
    bool large,
    mx::Stream s) const {
  Arrays few;
  int length = inputs[0].shape(-1);
  int first = 2 + post_weight + weight;
  auto x = shape_of_rows(way_of_factor(inputs), length);
  x[1] = rows;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    bool is_weight = i >= 2 && i < first;
    int way = is_weight        ? kOneForAll
        : factor && i == first ? way_of_factor(inputs)
                               : kAsX;
    auto shape = shape_of(way, /* heads= */ false, x);
    few.push_back(
        self_check::values(
            shape, inputs[i].dtype(), 17 * i + 1, large && i < 2, s));
  }
  return few;
}

void NormAddNorm::check(const Arrays& inputs) const {
  NormAddNormInputs in(spec, inputs.data());
  check_same_shape(name(), "residual", in.residual, in.x);
  if (in.post_weight) {
    check_vector(name(), "post_weight", *in.post_weight, in.x);
  }
  if (in.weight) {
    check_vector(name(), "weight", *in.weight, in.x);
  }
  if (in.factor) {
    check_broadcasts(name(), "factor", *in.factor, in.x);
  }
}

Arrays NormAddNorm::fallback(const Arrays& inputs, mx::Stream s) const {
  return in_two_norms(spec, dtypes[0], inputs, s, fallback_of_inputs);
}

Arrays NormAddNorm::steps(const Arrays& inputs, mx::Stream s) const {
  return in_two_norms(spec, dtypes[0], inputs, s, make_norm);
}

bool NormAddNorm::suits(const Arrays& inputs, mx::Stream s) const {
  return backend_of(s) == Backend::Cpu || spec.late() ||
      inputs[0].itemsize() == mx::size_of(dtypes[1]);
}

void NormAddNorm::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  spec.append_key(inputs, numbers);
}

OpPtr NormAddNorm::sampled(const Arrays&, mx::Stream) const {
  return shared(NormAddNorm(spec.flags(), dtypes));
}

Arrays NormAddNorm::sample(const Arrays& inputs, mx::Stream s) const {
  return spec.few_rows(inputs, 2, /* large= */ spec.clamp, s);
}

// The kernel accepts one weight of each norm, and a factor that broadcasts.
Call<OpPtr> NormAddNorm::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (any_batched(axes, 2, axes.size())) {
    return {};
  }
  auto batch =
      with_leading_batch({inputs[0], inputs[1]}, {axes[0], axes[1]}, s);
  batch.insert(batch.end(), inputs.begin() + 2, inputs.end());
  return {copy(), std::move(batch)};
}

TwoArrays norm_add_norm(const NormArguments& a) {
  const char* op = "norm_add_norm";
  const auto& x = *a.x;
  auto* factor = array_of(a.factor);
  NormInputs of_sum{
      {kX, &x},
      {kResidual, a.residual},
      {kWeight, a.weight},
      {kFactor, factor}};
  check_inputs(op, of_sum);
  if (a.post_weight) {
    check_vector(op, "post_weight", *a.post_weight, x);
  }
  if (a.weight_offset != 0.0f && !a.post_weight) {
    refuse(
        op,
        "weight_offset is " + text(a.weight_offset) +
            " but there is no post_weight to add it to.");
  }
  auto norm = spec_of(op, /* center= */ false, of_sum, a.eps, a.weight_offset);
  if (a.dtype) {
    check_dtype(op, "dtype", *a.dtype);
  }
  NormAddNormSpec spec{
      .post_weight = a.post_weight != nullptr,
      .weight = a.weight != nullptr,
      .factor = factor != nullptr,
      .number = number_of(a.factor, x.dtype()),
      .clamp = a.clamp,
      .rounding = parse_rounding(op, a.rounding, a.weight_offset),
      .weight_offset = norm.weight_offset,
      .eps = norm.eps};
  NormAddNormInputs in(x, *a.residual, a.post_weight, a.weight, factor);
  auto outputs = make(
      NormAddNorm{spec, {a.dtype.value_or(x.dtype()), in.sum_dtype()}},
      in.arrays(),
      mx::to_stream(a.stream));
  return {std::move(outputs[0]), std::move(outputs[1])};
}

} // namespace mlx_norms
