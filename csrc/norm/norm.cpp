// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/norm.h"

#include "csrc/common/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/few_rows.h"

namespace mlx_norms {

Norm::Norm(const NormSpec& spec, mx::Dtype dtype, const Arrays& inputs)
    : spec(spec) {
  for (size_t i = 0; i < inputs.size(); i += spec.n_inputs()) {
    dtypes.push_back(dtype);
    if (spec.has(kResidual)) {
      dtypes.push_back(NormInputs(spec.operands, &inputs[i]).sum_dtype());
    }
  }
}

const char* Norm::name() const {
  if (spec.l2) {
    return "mlx_norms::L2Norm";
  }
  if (spec.has(kResidual)) {
    return spec.center ? "mlx_norms::AddLayerNorm" : "mlx_norms::AddRMSNorm";
  }
  return spec.center ? "mlx_norms::LayerNorm" : "mlx_norms::RMSNorm";
}

Donors Norm::donors(const Arrays& inputs, size_t i, mx::Stream) const {
  auto tensor = i / spec.n_outputs();
  NormInputs in(spec.operands, &inputs[tensor * spec.n_inputs()]);
  bool is_sum = i % spec.n_outputs() != 0;
  return is_sum ? Donors{in[kResidual], &in.x(), in[kResidual2]}
                : Donors{&in.x(), in[kResidual], in[kGate], in[kResidual2]};
}

void Norm::check(std::span<const array> inputs) const {
  for (auto* a = inputs.data(); a != inputs.data() + inputs.size();) {
    const auto& x = *a++;
    for (auto operand : spec.operands.without({kX})) {
      auto* argument = kOperandTraits[operand].name;
      if (operand == kFactor && spec.factor_of_sum) {
        check_one_element(name(), argument, *a++);
      } else if (kOperandTraits[operand].kind == OperandKind::Vector) {
        check_head_weight(name(), argument, *a++, "x", x);
      } else if (operand == kResidual || operand == kResidual2) {
        check_same_shape(name(), argument, *a++, x);
      } else {
        // A gate, too: of a batch of examples it may be the same for each.
        check_broadcasts(name(), argument, *a++, x);
      }
    }
  }
}

Arrays Norm::fallback(const Arrays& inputs, mx::Stream s) const {
  return fallback_norms(spec, dtypes[0], inputs, s);
}

void Norm::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  spec.append_key(numbers);
  append_layouts(inputs, spec.operands, numbers);
}

Norm Norm::sampled(const Arrays&, mx::Stream) const {
  auto few = *this;
  few.spec = spec.flags();
  return few;
}

Arrays Norm::sample(const Arrays& inputs, mx::Stream s) const {
  auto few = few_rows(inputs, spec.operands, 2, /* large= */ spec.clamp, s);
  if (spec.factor_of_sum) {
    auto at = spec.operands.index_of(kFactor);
    few[at] =
        self_check::values({1}, few[at].dtype(), 17 * at + 1, spec.clamp, s);
  }
  return few;
}

Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  Norm norm(spec, dtype, inputs);
  return make(std::move(norm), std::move(inputs), stream);
}

} // namespace mlx_norms
