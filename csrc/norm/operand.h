// Copyright © 2026 mlx_norms contributors
//
// The one table of a norm's operands. What has one of each is a loop over it.
// Plain data only: csrc/norm/cpu_kernels.h says why. A norm computes
//
//   s = (residual + factor * x) + residual2, where terms have SumNumbers, too,
//       or x * activation(gate)
//       with x = norm(x) * (post_weight + weight_offset) if that comes first
//   n = norm(s) * (weight + weight_offset) + bias
//   m = n * (1 + scale) + shift
//   y = m * activation(gate) * multiplier, or activation(m) without a gate
//
// and with a residual s is an output, too.

#pragma once

namespace mlx_norms {

// What a norm or its gradient reads, in the order of a node's inputs. A node's
// gradients come in this order, too.
enum Operand {
  kX, // of a gradient: what was normalized, x or the rounded sum
  kResidual,
  kResidual2,
  kPostWeight,
  kWeight,
  kBias,
  kMean, // of each channel, with its variance, or of each group
  kRest, // of groups: what a float32 mean lacks
  kVariance,
  kScale,
  kShift,
  kFactor,
  kGate,
  kCotangent,
  kSumCotangent,
  kOperands
};

// How an operand's shape fits x's.
enum class OperandKind {
  Addend,   // it is x's, and the norm is that of their sum
  Rows,     // it is x's
  Vector,   // [D], or [heads, D], with D the last axis of x
  Broadcast // it broadcasts to x's, with the last axis
};

struct OperandTraits {
  const char* name; // as in an op's arguments
  OperandKind kind;
};

constexpr OperandTraits kOperandTraits[kOperands] = {
    {"x", OperandKind::Addend},
    {"residual", OperandKind::Addend},
    {"residual2", OperandKind::Addend},
    {"post_weight", OperandKind::Vector},
    {"weight", OperandKind::Vector},
    {"bias", OperandKind::Vector},
    {"mean", OperandKind::Vector},
    {"the mean's rest", OperandKind::Vector},
    {"var", OperandKind::Vector},
    {"scale", OperandKind::Broadcast},
    {"shift", OperandKind::Broadcast},
    {"factor", OperandKind::Broadcast},
    {"gate", OperandKind::Broadcast},
    {"cotangent", OperandKind::Rows},
    {"sum's cotangent", OperandKind::Rows}};

// The numbers of a sum, each in the dtype of what it multiplies.
struct SumNumbers {
  float factor = 1.0f; // of x, if it is no operand
  float alpha = 1.0f;  // of the residual
};

} // namespace mlx_norms
