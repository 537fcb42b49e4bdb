// Copyright © 2026 mlx_norms contributors

#include <numeric>

#include "csrc/common/backend.h"
#include "csrc/common/sum.h"
#include "csrc/norm/groups/groups.h"

namespace mlx_norms {

namespace {

// The dtype of the parameters' sums: the parameters', if they are gradients as
// they are.
mx::Dtype sums_dtype_of(
    const NormSpec& spec,
    const NormInputs& in,
    Operands wanted,
    mx::Stream stream) {
  if (spec.sample_axes > 0 || backend_of(stream) == Backend::Cpu) {
    return mx::float32;
  }
  std::optional<mx::Dtype> dtype;
  for (auto operand : wanted) {
    bool is_sum = operand == kWeight || operand == kBias;
    if (!is_sum || (dtype && *dtype != in[operand]->dtype())) {
      return mx::float32;
    }
    dtype = in[operand]->dtype();
  }
  return dtype.value_or(mx::float32);
}

} // namespace

Gradients groups_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array* statistics,
    const array& cotangent,
    Operands wanted,
    mx::Stream s) {
  auto of_parameters = wanted.without({kX});
  auto of_norm = wanted.only({kX});
  if (of_parameters != Operands{}) {
    of_norm = of_norm.with({kWeight, kBias});
  }
  auto given = in;
  given[kCotangent] = &cotangent;
  if (!spec.has_running_statistics()) {
    for (auto operand : {kMean, kRest, kVariance}) {
      given[operand] = statistics++;
    }
  }
  PerOperand<std::optional<mx::Dtype>> dtypes;
  dtypes[kWeight] = dtypes[kBias] = sums_dtype_of(spec, in, of_parameters, s);
  auto gradients = norm_gradients(spec, given, of_norm, dtypes, s);
  if (of_parameters == Operands{}) {
    return gradients;
  }
  std::vector<int> samples(spec.sample_axes);
  std::iota(samples.begin(), samples.end(), 0);
  for (auto operand : {kWeight, kBias}) {
    auto& sums = gradients[operand];
    sums = sum_over(*sums, samples, /* keepdims= */ false, s);
  }
  for (auto operand : of_parameters.only({kMean, kVariance})) {
    auto variance = mx::astype(*in[kVariance], mx::float32, s);
    auto square = mx::reciprocal(mx::add(variance, array(spec.eps), s), s);
    auto by = operand == kMean ? mx::negative(mx::sqrt(square, s), s)
                               : mx::multiply(square, array(-0.5f), s);
    const auto& sums = gradients[operand == kMean ? kBias : kWeight];
    auto gradient = mx::multiply(*sums, by, s);
    if (auto* weight = in[kWeight]) {
      gradient = mx::multiply(gradient, mx::astype(*weight, mx::float32, s), s);
    }
    gradients[operand] = gradient;
  }
  return gradients;
}

} // namespace mlx_norms
