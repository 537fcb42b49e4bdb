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
//     call of the same kernel with few rows
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

#include <algorithm>
#include <array>
#include <atomic>
#include <span>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/common/self_check.h"
#include "csrc/common/sum.h"
#include "csrc/cpu/settings.h"
#include "csrc/gpu/run.h"
#include "mlx/primitives.h"

namespace mlx_norms {

using Donors = std::array<const array*, 4>; // nullptr: none
using Dtypes = mx::SmallVector<mx::Dtype, 4>;

template <typename Op>
struct Call {
  Op op;
  Arrays inputs;
};

template <typename Op>
constexpr bool kHasSeveralOutputs = requires(Op op) { op.dtypes; };

template <typename Op>
std::span<const mx::Dtype> dtypes_of(const Op& op) {
  if constexpr (kHasSeveralOutputs<Op>) {
    return {op.dtypes.data(), op.dtypes.size()};
  } else {
    return {&op.dtype, 1};
  }
}

template <typename Op>
Arrays in_steps(const Op& op, const Arrays& inputs, mx::Stream stream) {
  if constexpr (requires { &Op::steps; }) {
    return op.steps(inputs, stream);
  } else {
    return op.fallback(inputs, stream);
  }
}

template <typename Op>
Function steps_of(Op op, mx::Stream stream) {
  return [op = std::move(op), stream](const Arrays& inputs) {
    return for_any_size(in_steps(op, inputs, stream), {&inputs}, stream);
  };
}

inline Arrays as_arrays(array a) {
  return {std::move(a)};
}
inline Arrays as_arrays(Arrays arrays) {
  return arrays;
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

template <typename Op>
class Node final : public mx::Primitive {
 public:
  Node(mx::Stream stream, Op op) : Primitive(stream), op_(std::move(op)) {}

  // csrc/op/eval_cpu.h defines it.
  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;

  void eval_gpu(const Arrays& inputs, Arrays& outputs) override {
    prepare(inputs, outputs, [&](array& out, const Donors& from) {
      gpu::allocate(out, stream(), {from[0], from[1], from[2], from[3]});
    });
    run(op_, inputs, outputs, stream());
  }

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums) override {
    auto derivatives = [&] {
      if constexpr (requires { &Op::jvp; }) {
        return op_.jvp(primals, tangents, argnums, stream());
      } else {
        return jvp_of(steps(), primals, tangents, argnums);
      }
    };
    return for_any_size(derivatives(), {&primals, &tangents}, stream());
  }

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override {
    auto gradients = [&] {
      if constexpr (requires { &Op::vjp; }) {
        return op_.vjp(primals, cotangents, argnums, outputs, stream());
      } else {
        return vjp_of(steps(), primals, cotangents, argnums);
      }
    };
    return for_any_size(
        gradients(), {&primals, &cotangents, &outputs}, stream());
  }

  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    return with_leading_axes(
        for_any_size(mapped(inputs, axes), {&inputs}, stream()));
  }

  const Op& op() const {
    return op_;
  }
  const char* name() const override {
    return op_.name();
  }

  bool is_equivalent(const Primitive& other) const override {
    const auto& node = static_cast<const Node&>(other);
    return op_ == node.op_ &&
        (!kHasSeveralOutputs<Op> || merging_.into(node.merging_));
  }

  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override {
    if constexpr (kHasSeveralOutputs<Op>) {
      std::vector<mx::Shape> shapes;
      shapes.reserve(op_.dtypes.size());
      for (size_t i = 0; i < op_.dtypes.size(); ++i) {
        shapes.push_back(op_.shape(inputs, i));
      }
      return shapes;
    } else {
      return {op_.shape(inputs)};
    }
  }

 private:
  Function steps() {
    return steps_of(op_, stream());
  }

  Arrays mapped(const Arrays& inputs, const std::vector<int>& axes) {
    if constexpr (requires { &Op::mapped; }) {
      return op_.mapped(inputs, axes, stream());
    } else {
      if constexpr (requires { &Op::batched; }) {
        if (auto call = op_.batched(inputs, axes, stream())) {
          auto& [op, batch] = *call;
          return as_arrays(make(std::move(op), std::move(batch), stream()));
        }
      }
      return mx::vmap(steps(), axes)(inputs);
    }
  }

  template <typename F>
  void prepare(const Arrays& inputs, Arrays& outputs, F allocate) {
    check_in_eval(stream(), [&] { op_.check(inputs); });
    release_inputs(inputs, outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      allocate(outputs[i], op_.donors(inputs, i, stream()));
    }
  }

  Op op_;
  Merging merging_;
};

// As array::make_arrays, with fewer allocations.
template <typename Op>
Arrays outputs_of(std::shared_ptr<Node<Op>> node, Arrays inputs) {
  const auto& op = node->op();
  auto n = op.dtypes.size();
  Arrays outputs;
  outputs.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    auto shape = op.shape(inputs, i);
    bool last = i + 1 == n;
    outputs.emplace_back(
        std::move(shape),
        op.dtypes[i],
        node,
        last ? std::move(inputs) : inputs);
  }
  make_siblings(outputs);
  return outputs;
}

// The op's output, or outputs, by its kernel. The inputs have been checked.
template <typename Op>
auto node(Op op, Arrays inputs, mx::Stream stream) {
  if constexpr (kHasSeveralOutputs<Op>) {
    auto primitive = std::make_shared<Node<Op>>(stream, std::move(op));
    return outputs_of(std::move(primitive), std::move(inputs));
  } else {
    auto shape = op.shape(inputs);
    auto dtype = op.dtype;
    auto primitive = std::make_shared<Node<Op>>(stream, std::move(op));
    return array(
        std::move(shape), dtype, std::move(primitive), std::move(inputs));
  }
}

// The outputs that a self-check compares.
template <typename Op>
Arrays compared(Arrays outputs) {
  if constexpr (requires { Op::kCompared; }) {
    outputs.erase(outputs.begin() + Op::kCompared, outputs.end());
  }
  return outputs;
}

template <typename Op>
Arrays reference_of(const Op& op, const Arrays& rows, mx::Stream stream) {
  if constexpr (requires { &Op::reference; }) {
    return op.reference(rows, stream);
  } else {
    return op.fallback(rows, stream);
  }
}

template <typename Op>
bool is_empty(const Op& op, const Arrays& inputs) {
  if constexpr (requires { &Op::is_empty; }) {
    return op.is_empty(inputs);
  } else {
    return inputs[0].size() == 0;
  }
}

// Whether the op's kernel for these inputs agrees with its fallback on a sample
// (common/self_check.h).
template <typename Op>
bool passes_self_check(const Op& op, const Arrays& inputs, mx::Stream stream) {
  if (is_empty(op, inputs)) {
    return true;
  }
  static thread_local CallTable<Op, bool> passed; // a verdict takes a lock
  CallKey call(inputs, stream);
  if (passed.find(op, call)) {
    return true;
  }
  self_check::Key key{op.name(), {}};
  op.append_key(inputs, stream, key.numbers);
  auto append = [&](mx::Dtype dtype) {
    key.numbers.push_back(static_cast<int64_t>(dtype.val()));
  };
  for (const auto& input : inputs) {
    append(input.dtype());
  }
  auto dtypes = dtypes_of(op);
  std::for_each(dtypes.begin(), dtypes.end(), append);
  auto sample = [&] {
    auto few = op.sampled(inputs, stream);
    bool donates = false;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      for (auto* donor : op.donors(inputs, i, stream)) {
        donates |= donor != nullptr;
      }
    }
    return self_check::Sample{
        [&](mx::Stream s) { return op.sample(inputs, s); },
        [few](Arrays rows, mx::Stream s) {
          return compared<Op>(as_arrays(node(few, std::move(rows), s)));
        },
        [few](const Arrays& rows, mx::Stream s) {
          return compared<Op>(reference_of(few, rows, s));
        },
        donates};
  };
  bool agrees = self_check::agrees(std::move(key), stream.device, sample, [&] {
    return self_check::described(op.name(), inputs, dtypes[0]);
  });
  if (agrees) {
    passed.add(op, call, true);
  }
  return agrees;
}

template <typename Op>
bool suits(const Op& op, const Arrays& inputs, mx::Stream stream) {
  if constexpr (requires { &Op::suits; }) {
    return op.suits(inputs, stream);
  } else {
    return true;
  }
}

// Whether the op's kernel, if it suits, runs on the stream.
template <typename Op>
bool runs_kernel(const Op& op, const Arrays& inputs, mx::Stream stream) {
  if (backend_of(stream) == Backend::Cpu) {
    cpu::check_settings();
  }
  return runs_kernels(
      stream, [&] { return passes_self_check(op, inputs, stream); });
}

template <typename Op>
bool has_kernel(const Op& op, const Arrays& inputs, mx::Stream stream) {
  return suits(op, inputs, stream) && runs_kernel(op, inputs, stream);
}

// The op's output, or outputs, by its kernel, by other ops if it does not suit,
// or by MLX's ops if it does not run. The inputs have been checked.
template <typename Op>
auto make(Op op, Arrays inputs, mx::Stream stream) {
  bool suited = suits(op, inputs, stream);
  if (suited && runs_kernel(op, inputs, stream)) {
    return node(std::move(op), std::move(inputs), stream);
  }
  auto outputs = for_any_size(
      suited ? op.fallback(inputs, stream) : in_steps(op, inputs, stream),
      {&inputs},
      stream);
  if constexpr (kHasSeveralOutputs<Op>) {
    return outputs;
  } else {
    return std::move(outputs[0]);
  }
}

} // namespace mlx_norms
