// Copyright © 2026 mlx_norms contributors
//
// An op is a plain value, and Node the primitive that MLX sees. What an op
// lacks (vjp, jvp, vmap) follows from its fallback in MLX's ops.
//
// An op is a struct with
//   bool operator==, const char* name() const
//   mx::Dtype dtype and mx::Shape shape(inputs) const, of its output; or, if
//     there may be several, Dtypes dtypes and mx::Shape shape(inputs, i) const
//   void check(inputs) const, which throws if the inputs do not fit
//   Donors donors(inputs, i, stream) const, whose buffers output i may take
//   Arrays fallback(inputs, stream) const, in MLX's ops
//   LaunchPlan plan(inputs, outputs, stream) const
//   void eval_cpu(inputs, outputs, stream) const, of allocated outputs, unless
//     its kernel is a GPU's alone
// for its self-check on Metal
//   void append_key(inputs, stream, numbers) const: what kernels depend on
//     besides name and dtypes
//   Op sampled(inputs, stream) const, Arrays sample(inputs, stream) const: a
//     call of the same kernels with few rows, whose inputs are the call's, but
//     smaller; each may be laid out anew in memory
//   static constexpr int kCompared, the first outputs, if not all are compared
//   Arrays reference(sample, stream) const, what it is compared with, if not
//     with the fallback
//   bool is_empty(inputs) const, of what has no sample, if that is not an
//     empty first input
// if its kernel does not suit all inputs, or other ops have better transforms,
//   bool suits(inputs, stream) const
//   Arrays steps(inputs, stream) const, the same by other ops
// and, only if those of the steps or the fallback are too slow,
//   Arrays jvp(primals, tangents, argnums, stream) const
//   Arrays vjp(primals, cotangents, argnums, outputs, stream) const
//   std::optional<Call<Op>> batched(inputs, axes, stream) const: a call whose
//     rows have the mapped axis; std::nullopt: it is mapped step by step
//   Arrays mapped(inputs, axes, stream) const, in place of batched: the outputs
//     with the mapped axis first

#pragma once

#include <array>
#include <atomic>
#include <span>
#include <type_traits>

#include "csrc/common/types.h"
#include "mlx/primitives.h"
#include "mlx/utils.h"

namespace mlx_norms {

struct LaunchPlan;

using Donors = std::array<const array*, 4>; // nullptr: none
using Dtypes = mx::SmallVector<mx::Dtype, 4>;

template <typename Op>
struct Call {
  Op op;
  Arrays inputs;
};

template <typename Op>
constexpr bool kHasSeveralOutputs = requires(Op op) { op.dtypes; };

// An array, or several.
template <typename Op>
using Outputs = std::conditional_t<kHasSeveralOutputs<Op>, Arrays, array>;

template <typename Op>
std::span<const mx::Dtype> dtypes_of(const Op& op) {
  if constexpr (kHasSeveralOutputs<Op>) {
    return {op.dtypes.data(), op.dtypes.size()};
  } else {
    return {&op.dtype, 1};
  }
}

// A node's part in merging equivalent nodes, as mx.compile does. It compares
// each pair of their outputs, but only in the first comparison of two nodes
// does it know which of them comes first. Later ones may merge the first into
// the second and fail with an IndexError. So a node that was found equivalent
// to one before it is not compared again.
class Merging {
 public:
  // Whether this node may be merged into the other, to which it is equal.
  bool into(const Merging& other) const {
    return !other.merged_.load(std::memory_order_relaxed) &&
        !merged_.exchange(true, std::memory_order_relaxed);
  }

 private:
  mutable std::atomic<bool> merged_ = false;
};

// csrc/op/define_node.h defines what is declared here, and eval_cpu.h the rest.
template <typename Op>
class Node final : public mx::Primitive {
 public:
  Node(mx::Stream stream, Op op) : Primitive(stream), op_(std::move(op)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums) override;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override;
  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override;
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

  const Op& op() const {
    return op_;
  }
  const char* name() const override {
    return op_.name();
  }

  // Of a patched call, how and when it is counted (csrc/patching/report.cpp);
  // 0: it is of none.
  mutable std::atomic<uint32_t> counted_as = 0;

 private:
  Arrays mapped(const Arrays& inputs, const std::vector<int>& axes);
  template <typename F>
  void prepare(const Arrays& inputs, Arrays& outputs, F allocate);

  Op op_;
  Merging merging_;
};

// The op's output, or outputs, by its kernel. The inputs have been checked.
template <typename Op>
Outputs<Op> node(Op op, Arrays inputs, mx::Stream stream);

// Whether the op's kernel, if it suits, runs on the stream.
template <typename Op>
bool runs_kernel(const Op& op, const Arrays& inputs, mx::Stream stream);

// Whether it suits, too.
template <typename Op>
bool has_kernel(const Op& op, const Arrays& inputs, mx::Stream stream);

// The op's output, or outputs, by its kernel, by other ops if it does not suit,
// or by MLX's ops if it does not run. The inputs have been checked.
template <typename Op>
Outputs<Op> make(Op op, Arrays inputs, mx::Stream stream);

} // namespace mlx_norms
