// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/spec.h"

namespace mlx_norms {

NormSpec NormSpec::without_sum() const {
  auto spec = *this;
  spec.operands = operands.without(kOfSum).without({kPostWeight}).with({kX});
  spec.factor_of_sum = false;
  spec.norm_first = false;
  static_cast<SumNumbers&>(spec) = {};
  return spec;
}

NormSpec NormSpec::first_norm() const {
  NormSpec first;
  first.rounding = rounding;
  first.eps = eps;
  first.operands.set(kWeight, has(kPostWeight));
  first.weight_offset = has(kPostWeight) ? weight_offset : Number(0.0f);
  return first;
}

NormSpec NormSpec::second_norm() const {
  auto second = *this;
  second.operands.set(kPostWeight, false);
  second.norm_first = false;
  second.weight_offset = has(kWeight) ? weight_offset : Number(0.0f);
  return second;
}

NormSpec NormSpec::without_gate() const {
  auto spec = *this;
  spec.operands = operands.without({kGate});
  spec.gate_first = false;
  spec.activation = Activation::None;
  return spec;
}

NormSpec NormSpec::bare() const {
  auto spec = gate_first ? *this : without_gate();
  spec.operands = spec.operands.without(
      {kPostWeight, kWeight, kBias, kScale, kShift, kCotangent, kSumCotangent});
  spec.norm_first = false;
  spec.weight_offset = 0.0f;
  spec.multiplier = 1.0f;
  return spec;
}

void NormSpec::append_key(std::vector<int64_t>& numbers) const {
  numbers.insert(
      numbers.end(),
      {operands.bits(),
       axis != -1,
       grouped,
       strided,
       groups == 0,
       center,
       l2,
       eps_bounds,
       factor_of_sum,
       norm_first,
       gate_first,
       static_cast<int64_t>(activation),
       identity,
       clamp,
       static_cast<int64_t>(rounding),
       is_multiplied(),
       weight_offset != 0.0f});
  for (auto number : std::bit_cast<NumberArray, SumNumbers>(*this)) {
    numbers.push_back(number != 1.0f);
  }
}

NormSpec NormSpec::flags() const {
  auto spec = *this;
  spec.axis = axis == -1 ? -1 : -2;
  spec.eps = 1e-5f;
  spec.weight_offset = weight_offset != 0.0f ? 1.0f : 0.0f;
  auto numbers = std::bit_cast<NumberArray, SumNumbers>(*this);
  for (auto& number : numbers) {
    number = number != 1.0f ? 0.75f : 1.0f;
  }
  static_cast<SumNumbers&>(spec) = std::bit_cast<SumNumbers>(numbers);
  spec.multiplier = is_multiplied() ? 0.375f : 1.0f;
  return spec;
}

} // namespace mlx_norms
