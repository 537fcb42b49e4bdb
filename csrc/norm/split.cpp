// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/split.h"

#include "csrc/norm/fallback.h"
#include "csrc/norm/nodes.h"
#include "csrc/norm/row_groups.h"

namespace mlx_norms {

namespace {

NormSpec bare(NormSpec spec) {
  spec.weight = spec.bias = spec.scale = spec.shift = false;
  spec.weight_offset = 0.0f;
  if (!spec.gate_first) {
    spec.gate = false;
    spec.activation = Activation::None;
  }
  return spec;
}

} // namespace

NormSpec without_sum(NormSpec spec) {
  spec.residual = spec.factor = spec.factor_of_sum = false;
  spec.number = 1.0f;
  return spec;
}

NormSpec without_gate(NormSpec spec) {
  spec.gate = spec.gate_first = false;
  spec.activation = Activation::None;
  return spec;
}

Arrays bare_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream) {
  Arrays inputs{in.x};
  if (in.residual) {
    inputs.push_back(*in.residual);
  }
  if (in.factor) {
    inputs.push_back(*in.factor);
  }
  if (in.gate && spec.gate_first) {
    inputs.push_back(*in.gate);
  }
  return make_norm(bare(spec), dtype, std::move(inputs), stream);
}

array bare_norm(NormSpec spec, const array& s, mx::Stream stream) {
  if (spec.identity) {
    return mx::astype(s, mx::float32, stream);
  }
  spec = without_gate(without_sum(spec));
  NormInputs in(bare(spec), &s);
  return bare_norm(spec, mx::float32, in, stream)[0];
}

array bare_norm_vjp(
    const NormSpec& spec,
    mx::Dtype dtype,
    const array& s,
    const array& a,
    const array* sum_cotangent,
    mx::Stream stream) {
  NormVJPSpec vjp{.norm = without_sum(bare(spec)), .input = true};
  vjp.norm.residual = sum_cotangent != nullptr;
  Arrays inputs{s, a};
  if (sum_cotangent) {
    inputs.push_back(*sum_cotangent);
  }
  return make_norm_vjp(vjp, {dtype}, std::move(inputs), stream)[0];
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

Arrays split_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const NormVJPInputs& in,
    mx::Stream stream) {
  auto g = mx::astype(in.cotangent, mx::float32, stream);
  auto dtype = dtypes.begin();
  Arrays gradients;
  if (spec.input) {
    auto wg = in.weight
        ? mx::multiply(g, shifted_weight(spec.norm, *in.weight, stream), stream)
        : g;
    gradients.push_back(
        bare_norm_vjp(spec.norm, *dtype++, in.s, wg, in.sum_cotangent, stream));
  }
  if (spec.weight) {
    auto gn = mx::multiply(g, bare_norm(spec.norm, in.s, stream), stream);
    auto sum = sum_to(gn, in.weight->shape(), stream);
    gradients.push_back(mx::astype(sum, *dtype++, stream));
  }
  if (spec.bias) {
    auto sum = sum_of_bias(g, in.weight, stream);
    gradients.push_back(mx::astype(sum, *dtype++, stream));
  }
  return gradients;
}

} // namespace mlx_norms
