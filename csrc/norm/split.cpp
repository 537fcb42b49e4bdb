// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/split.h"

#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"

namespace mlx_norms {

Arrays bare_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream) {
  auto bare = spec.bare();
  Arrays inputs;
  for (auto operand : bare.operands) {
    inputs.push_back(*in[operand]);
  }
  return make_norm(bare, dtype, std::move(inputs), stream);
}

array bare_norm(const NormSpec& spec, const array& x, mx::Stream stream) {
  if (spec.identity) {
    return mx::astype(x, mx::float32, stream);
  }
  auto of_x = spec.without_sum().without_gate();
  return bare_norm(of_x, mx::float32, {{kX, &x}}, stream)[0];
}

array bare_norm_vjp(
    const NormSpec& spec,
    mx::Dtype dtype,
    const array& x,
    const array& a,
    const array* sum_cotangent,
    mx::Stream stream) {
  PerOperand<std::optional<mx::Dtype>> dtypes;
  dtypes[kX] = dtype;
  auto found = norm_gradients(
      spec.bare().without_sum(),
      {{kX, &x}, {kCotangent, &a}, {kSumCotangent, sum_cotangent}},
      {kX},
      dtypes,
      stream);
  return *found[kX];
}

Arrays split_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream) {
  bool early = spec.rounding == Rounding::Early;
  auto outputs = bare_norm(spec, early ? dtype : mx::float32, in, stream);
  outputs[0] = finish(spec, dtype, outputs[0], in, stream);
  return outputs;
}

Arrays
split_norm_vjp(const NormVJP& op, const Arrays& inputs, mx::Stream stream) {
  const auto& norm = op.norm;
  NormInputs in(norm.operands, inputs.data());
  auto* weight = in[kWeight];
  auto g = mx::astype(*in[kCotangent], mx::float32, stream);
  Gradients found;
  if (op.wanted.has(kX)) {
    auto wg = weight
        ? mx::multiply(g, shifted_weight(norm, *weight, stream), stream)
        : g;
    found[kX] = bare_norm_vjp(
        norm, op.dtypes[0], in.x(), wg, in[kSumCotangent], stream);
  }
  if (op.wanted.has(kWeight)) {
    auto gn = mx::multiply(g, bare_norm(norm, in.x(), stream), stream);
    found[kWeight] = sum_to(gn, *weight, stream);
  }
  if (op.wanted.has(kBias)) {
    found[kBias] = sum_of_bias(g, weight, stream);
  }
  return in_order(found, op.wanted, op.dtypes, stream);
}

} // namespace mlx_norms
