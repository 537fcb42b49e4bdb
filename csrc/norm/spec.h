// Copyright © 2026 mlx_norms contributors

#pragma once

#include <array>
#include <bit>

#include "csrc/common/activation.h"
#include "csrc/norm/operands.h"
#include "mlx/mlx.h"

namespace mlx_norms {

// An op's number. Ops are equal if theirs have the same bits: -0 is not 0.
class Number {
 public:
  constexpr Number(float value) : value_(value) {}
  constexpr operator float() const {
    return value_;
  }
  friend constexpr bool operator==(Number a, Number b) {
    return std::bit_cast<uint32_t>(a.value_) ==
        std::bit_cast<uint32_t>(b.value_);
  }
  friend constexpr bool operator==(Number a, float b) {
    return a.value_ == b;
  }

 private:
  float value_;
};

// All of them, to compare and to list.
using NumberArray = std::array<float, sizeof(SumNumbers) / sizeof(float)>;

inline bool operator==(const SumNumbers& a, const SumNumbers& b) {
  using Bits = std::array<uint32_t, std::tuple_size_v<NumberArray>>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b);
}

// When the normalized value is rounded to the output dtype: before the weight
// is applied (Early), or only at the end (Late).
enum class Rounding { Early, Late };

// What a norm reads and its options, by which kernels are specialized; what it
// computes stands in csrc/norm/operand.h.
struct NormSpec : SumNumbers {
  Operands operands{kX};
  int axis = -1; // of x, from the end, so that others may be put before
  // Or x is [samples..., positions..., channels], normalized over all positions
  // of a group of channels of a sample: group norm; instance norm, with groups
  // of one channel; batch norm, without axes of samples. Parameters have the
  // shape [channels], and so have a mean and a variance that are given.
  bool grouped = false;
  bool strided = false;    // channel c is in group c % groups, else they adjoin
  int groups = 0;          // 0: as many as channels
  int sample_axes = 1;     // of x, its first ones; others are of positions
  bool center = false;     // subtract the mean: LayerNorm, else RMSNorm
  bool l2 = false;         // the sum of squares instead of their mean
  bool eps_bounds = false; // of the root, instead of being added under it
  // (residual + x) * factor, an array of one element, rounded at both steps.
  bool factor_of_sum = false;
  bool norm_first = false; // x is an RMSNorm's with the same eps and rounding
  bool gate_first = false; // x times the gate is normalized
  Activation activation = Activation::None; // of the gate, else of the result
  bool identity = false; // not normalized: gradients of products with a weight
  bool clamp = false;    // a float16 sum saturates instead of reaching inf
  Rounding rounding = Rounding::Early;
  Number multiplier = 1.0f; // of the result, rounding early in its dtype
  Number weight_offset = 0.0f;
  float eps = 1e-5f;

  bool operator==(const NormSpec&) const = default;

  bool has(Operand operand) const {
    return operands.has(operand);
  }
  // Whether it is one of RMSNorm and LayerNorm with no more than the options
  // that mx.fast, a sum of two and a float16 clamp have.
  bool is_basic() const {
    return operands.without({kX, kResidual, kWeight, kBias}).count() == 0 &&
        is_of_rows() && is_of_mean_and_eps() && !norm_first && !has_numbers() &&
        !is_gated() && !is_multiplied();
  }
  // Whether each part of the last axis is normalized by itself.
  bool is_of_rows() const {
    return axis == -1 && !grouped;
  }
  // Whether statistics of each channel are given.
  bool has_running_statistics() const {
    return has(kMean) && !has(kRest);
  }
  // Whether the root is that of a mean with eps added.
  bool is_of_mean_and_eps() const {
    return !l2 && !eps_bounds;
  }
  bool is_modulated() const {
    return operands.has_any({kScale, kShift});
  }
  bool is_multiplied() const {
    return multiplier != 1.0f;
  }
  bool has_numbers() const {
    return !(static_cast<const SumNumbers&>(*this) == SumNumbers{});
  }
  bool is_factored() const {
    return has(kFactor) || factor != 1.0f;
  }
  bool is_gated() const {
    return has(kGate) || activation != Activation::None;
  }
  bool gates_result() const {
    return is_gated() && !gate_first;
  }
  // How many arrays one normalized tensor has.
  int n_inputs() const {
    return operands.count();
  }
  // How many outputs one normalized tensor has: normalized, [sum]; of groups
  // whose statistics are computed normalized, mean, rest, variance. The last
  // three are float32, of shape [samples..., groups].
  int n_outputs() const {
    return grouped && !has(kMean) ? 4 : 1 + has(kResidual);
  }

  // The norm of a sum that has been computed.
  NormSpec without_sum() const;
  // The two norms of a norm after a norm: that of x, and that of the sum with
  // its result.
  NormSpec first_norm() const;
  NormSpec second_norm() const;
  // The norm without its gate and activation.
  NormSpec without_gate() const;
  // The norm, or that of a gradient, without what is applied to its result.
  NormSpec bare() const;

  // The options on which kernels depend, for a self-check's key; and the spec
  // that stands for all that have them.
  void append_key(std::vector<int64_t>& numbers) const;
  NormSpec flags() const;
};

} // namespace mlx_norms
