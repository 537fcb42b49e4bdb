// Copyright © 2026 mlx_norms contributors
//
// A norm in a graph, with what has been made part of it.

#pragma once

#include "csrc/norm/spec.h"
#include "csrc/patching/pending.h"

namespace mlx_norms {

// What computes arrays.
struct Made {
  std::shared_ptr<mx::Primitive> node;
  Arrays inputs;
};

// A norm of rows, over another axis, or of groups of channels.
struct NormCall {
  NormSpec spec;
  mx::Dtype dtype;
  mx::Stream stream;
  PerOperand<OptionalArray> in = {};
  // Reads a pending node of ours or, on a GPU, of MLX's; nullopt: it is none,
  // or has a multiplier, another norm first, several tensors, or statistics of
  // each channel.
  static std::optional<NormCall> of(const array& output);

  bool is_of_rows() const {
    return spec.is_of_rows() && !spec.norm_first;
  }
  const array& x() const {
    return *in[kX];
  }
  void set(Operand operand, array a) {
    spec.operands.set(operand);
    in[operand] = std::move(a);
  }
  void clear(Operand operand) {
    spec.operands.set(operand, false);
    in[operand] = std::nullopt;
  }
  // Whether something is applied to the normalized value.
  bool has_parameters() const {
    return spec.operands.has_any({kWeight, kBias, kScale, kShift, kGate}) ||
        spec.activation != Activation::None;
  }
  // The node that computes it; nullopt: no kernel does.
  std::optional<Made> made() const;
  // What takes the places of its outputs after the first and a sum, if these
  // are no arrays yet: the statistics of groups.
  Arrays statistics() const;

 private:
  Arrays inputs() const;
};

// The node of an op; nullopt if no kernel computes it.
std::optional<Made> made_of(OpPtr op, Arrays inputs, mx::Stream stream);

} // namespace mlx_norms
