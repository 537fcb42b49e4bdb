// Copyright © 2026 mlx_norms contributors
//
// Plain data only: csrc/norm/cpu_kernels.h says why.

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
  kMean, // of each channel, with its variance
  kVariance,
  kScale,
  kShift,
  kFactor,
  kGate,
  kCotangent,
  kSumCotangent
};
static constexpr int kOperands = 14;

} // namespace mlx_norms
