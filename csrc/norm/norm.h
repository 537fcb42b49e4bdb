// Copyright © 2026 mlx_norms contributors
//
// The norms over the last axis, and their gradients (csrc/op/node.h says what
// an op has).

#pragma once

#include <span>

#include "csrc/gpu/launch_plan.h"
#include "csrc/norm/spec.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// Inputs and outputs are one group per tensor (see NormSpec); two tensors of
// one row length and dtype, as in qk_norm, are normalized in one launch.
struct Norm {
  NormSpec spec;
  Dtypes dtypes;

  // `dtype` is that of the normalized outputs.
  Norm(const NormSpec& spec, mx::Dtype dtype, const Arrays& inputs);

  bool operator==(const Norm&) const = default;
  const char* name() const;
  mx::Shape shape(const Arrays& inputs, size_t i) const {
    return inputs[i / spec.n_outputs() * spec.n_inputs()].shape();
  }
  Donors donors(const Arrays& inputs, size_t i, mx::Stream) const;
  void check(std::span<const array> inputs) const;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s) const;

  bool is_empty(const Arrays& inputs) const {
    return inputs[0].shape(-1) == 0;
  }
  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const;
  Norm sampled(const Arrays& inputs, mx::Stream s) const;
  Arrays sample(const Arrays& inputs, mx::Stream s) const;

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums,
      mx::Stream s) const;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const;
  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const;
};

// Those gradients of one tensor that are wanted, of kX, kWeight, kBias and
// kGate. A weight may broadcast to x: the gradients of weight and bias then
// have its shape.
struct NormVJP {
  NormSpec norm; // of x, [weight], [gate], cotangent, [sum's cotangent]
  Operands wanted;
  Dtypes dtypes;

  bool operator==(const NormVJP&) const = default;
  const char* name() const {
    return "mlx_norms::NormVJP";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const;
  Donors donors(const Arrays& inputs, size_t i, mx::Stream s) const;
  void check(const Arrays& inputs) const;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s) const;

  bool is_empty(const Arrays& inputs) const {
    return inputs[0].shape(-1) == 0;
  }
  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const;
  NormVJP sampled(const Arrays& inputs, mx::Stream s) const;
  Arrays sample(const Arrays& inputs, mx::Stream s) const;

  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const;

  // Whether x and its cotangent are read after x's gradient is stored, which
  // then cannot take their memory.
  bool reads_rows_again(const array& x, mx::Stream s) const;
};

// {normalized, [sum]} of each tensor, by a kernel that can be trusted or else
// by MLX's ops. The inputs have been checked.
Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// The same over an axis that is not the last one, counted from the end.
array make_channel_norm(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// The gradients of a norm with these options and inputs, likewise. They have
// these dtypes or, where there is none, x's for x and float32.
Gradients norm_gradients(
    NormSpec norm,
    const NormInputs& in,
    Operands wanted,
    const PerOperand<std::optional<mx::Dtype>>& dtypes,
    mx::Stream stream);

// Those that are wanted, in order, in these dtypes.
Arrays in_order(
    const Gradients& gradients,
    Operands wanted,
    const Dtypes& dtypes,
    mx::Stream stream);

} // namespace mlx_norms
