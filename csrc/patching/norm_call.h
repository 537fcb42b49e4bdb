// Copyright © 2026 mlx_norms contributors
//
// A norm of this package in a graph, with what has been made part of it.

#pragma once

#include "csrc/norm/norm.h"
#include "csrc/patching/inline_norm.h"

namespace mlx_norms {

struct NormCall {
  NormSpec spec;
  mx::Dtype dtype;
  PerOperand<OptionalArray> in;
  mx::Stream stream;

  // Of a pending node; nullopt: it is none, or has a multiplier or several
  // tensors.
  static std::optional<NormCall> of(const array& output);

  // Of rows.
  static NormCall of(const InlineNorm& found);

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
  // In order, of these operands.
  Arrays inputs(Operands of) const;
  Arrays inputs() const {
    return inputs(spec.operands);
  }
  // Whether something is applied to the normalized value.
  bool has_parameters() const {
    return spec.operands.has_any({kWeight, kBias, kScale, kShift, kGate}) ||
        spec.activation != Activation::None;
  }
  // Whether a kernel computes it.
  bool runs() const;
  std::shared_ptr<mx::Primitive> node() const;
};

} // namespace mlx_norms
