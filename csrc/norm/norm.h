// Copyright © 2026 mlx_norms contributors
//
// The norms over the last axis, another one, or groups of channels, and their
// gradients.

#pragma once

#include "csrc/norm/row_groups.h"
#include "csrc/norm/spec.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// How many arrays an op normalizes in one launch, at most.
constexpr size_t kMaxTogether = 4;

// Inputs and outputs are one group per tensor (see NormSpec). Several RMSNorms
// have the same options but for a weight and a multiplier; plan() has those in
// one launch whose rows a kernel's instance can share.
struct Norm : OpOf<Norm> {
  NormSpec spec;                            // of the first tensor
  mx::SmallVector<NormSpec, 1> others = {}; // of those after it

  // One tensor; `dtype` is that of the normalized output.
  Norm(const NormSpec& spec, mx::Dtype dtype, const Arrays& inputs);
  // Several without sums.
  Norm(const std::vector<NormSpec>& specs, const Dtypes& dtypes)
      : OpOf(dtypes),
        spec(specs[0]),
        others(specs.begin() + 1, specs.end()) {}

  bool operator==(const Norm&) const = default;
  const char* name() const override;
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  Donors donors(const Arrays& inputs, size_t i, mx::Stream) const override;
  void check(const Arrays& inputs) const override;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s)
      const override;

  // Whether one launch of a norm after a norm adds up as two do. A GPU sums a
  // row of 16 bits in another order than one of 32, of which there may be one
  // of each; rounding early, the result would not be that of two norms.
  bool suits(const Arrays& inputs, mx::Stream s) const override;
  Arrays steps(const Arrays& inputs, mx::Stream s) const override;

  // Not statistics, which GPUs add up in other orders.
  size_t compared() const override {
    return spec.grouped ? 1 : Op::compared();
  }
  bool is_empty(const Arrays& inputs) const override;
  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const override;
  OpPtr sampled(const Arrays& inputs, mx::Stream s) const override;
  Arrays sample(const Arrays& inputs, mx::Stream s) const override;

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums,
      mx::Stream s) const override;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const override;
  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override;

  // A tensor's spec, and where its inputs and outputs begin.
  struct Tensor {
    const NormSpec& spec;
    size_t input;
    size_t output;

    NormInputs in(const Arrays& inputs) const {
      return {spec.operands, &inputs[input]};
    }
    Arrays inputs_of(const Arrays& inputs) const {
      auto first = inputs.begin() + input;
      return {first, first + spec.n_inputs()};
    }
  };
  template <typename F>
  void for_each_tensor(F f) const {
    Tensor first{spec, 0, 0};
    f(first);
    size_t input = spec.n_inputs(), output = spec.n_outputs();
    for (const auto& of : others) {
      f(Tensor{of, input, output});
      input += of.n_inputs();
      output += of.n_outputs();
    }
  }
  // That of this output.
  Tensor tensor_of(size_t output) const;
};

// Those gradients of one tensor that are wanted, of kX, kWeight, kBias and
// kGate. A weight may broadcast to x: the gradients of weight and bias then
// have its shape. Of groups they are sums over each sample's positions, of
// shape [samples..., channels], both or neither wanted, and the norm's
// statistics are inputs, too.
struct NormVJP : OpOf<NormVJP> {
  NormSpec norm; // of x, [weight], [gate], cotangent, [sum's cotangent]
  Operands wanted;

  NormVJP(const NormSpec& norm, Operands wanted, Dtypes dtypes)
      : OpOf(std::move(dtypes)),
        norm(norm),
        wanted(wanted) {}

  bool operator==(const NormVJP&) const = default;
  const char* name() const override {
    return "mlx_norms::NormVJP";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  Donors donors(const Arrays& inputs, size_t i, mx::Stream s) const override;
  void check(const Arrays& inputs) const override;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s)
      const override;

  bool is_empty(const Arrays& inputs) const override;
  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const override;
  OpPtr sampled(const Arrays& inputs, mx::Stream s) const override;
  Arrays sample(const Arrays& inputs, mx::Stream s) const override;

  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override;

  // Whether x and its cotangent are read after x's gradient is stored, which
  // then cannot take their memory.
  bool reads_rows_again(const array& x, mx::Stream s) const;
  // How x's rows share those of the weight.
  RowGroups groups_of(const Arrays& inputs) const;
  // Whether a GPU's loop has all rows of such a group: no launch adds up sums.
  bool stores_gradients(const Arrays& inputs, mx::Stream s) const;
};

// {normalized, [sum]}, by a kernel that can be trusted or else by MLX's ops.
// The inputs have been checked.
Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// The gradients of a norm with these options and inputs, by a kernel or by
// MLX's ops. They have these dtypes or, where there is none, x's for x and
// float32.
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
