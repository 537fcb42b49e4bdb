// Copyright © 2026 mlx_norms contributors
//
// What csrc/op/node.h declares. The file with an op's fallback includes this,
// and defines its node: no other has to compile it.

#pragma once

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/memory_layout.h"
#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/common/self_check.h"
#include "csrc/common/sum.h"
#include "csrc/cpu/settings.h"
#include "csrc/gpu/run.h"
#include "csrc/op/node.h"

// Of an op that has no self-check.
#define MLX_NORMS_DEFINE_NODE(Op) \
  template class Node<Op>;        \
  template Outputs<Op> node(Op, Arrays, mx::Stream);

#define MLX_NORMS_DEFINE_OP(Op)                                    \
  MLX_NORMS_DEFINE_NODE(Op)                                        \
  template bool runs_kernel(const Op&, const Arrays&, mx::Stream); \
  template bool has_kernel(const Op&, const Arrays&, mx::Stream);  \
  template Outputs<Op> make(Op, Arrays, mx::Stream);

namespace mlx_norms {

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

template <typename Op>
bool passes_self_check(
    const Op& op,
    const Arrays& inputs,
    mx::Stream stream,
    Checked how);

inline Arrays as_arrays(array a) {
  return {std::move(a)};
}
inline Arrays as_arrays(Arrays arrays) {
  return arrays;
}

template <typename Op>
template <typename F>
void Node<Op>::prepare(const Arrays& inputs, Arrays& outputs, F allocate) {
  check_in_eval(stream(), [&] { op_.check(inputs); });
  release_inputs(inputs, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    allocate(outputs[i], op_.donors(inputs, i, stream()));
  }
}

template <typename Op>
void Node<Op>::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  prepare(inputs, outputs, [&](array& out, const Donors& from) {
    gpu::allocate(out, stream(), {from[0], from[1], from[2], from[3]});
  });
  if constexpr (requires { &Op::sample; }) {
    run(op_, inputs, outputs, stream(), [&](Checked how) {
      return passes_self_check(op_, inputs, stream(), how);
    });
  } else {
    run(op_, inputs, outputs, stream(), nullptr);
  }
}

template <typename Op>
Arrays Node<Op>::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto derivatives = [&] {
    if constexpr (requires { &Op::jvp; }) {
      return op_.jvp(primals, tangents, argnums, stream());
    } else {
      return jvp_of(steps_of(op_, stream()), primals, tangents, argnums);
    }
  };
  return for_any_size(derivatives(), {&primals, &tangents}, stream());
}

template <typename Op>
Arrays Node<Op>::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  auto gradients = [&] {
    if constexpr (requires { &Op::vjp; }) {
      return op_.vjp(primals, cotangents, argnums, outputs, stream());
    } else {
      return vjp_of(steps_of(op_, stream()), primals, cotangents, argnums);
    }
  };
  return for_any_size(gradients(), {&primals, &cotangents, &outputs}, stream());
}

template <typename Op>
Arrays Node<Op>::mapped(const Arrays& inputs, const std::vector<int>& axes) {
  if constexpr (requires { &Op::mapped; }) {
    return op_.mapped(inputs, axes, stream());
  } else {
    if constexpr (requires { &Op::batched; }) {
      if (auto call = op_.batched(inputs, axes, stream())) {
        auto& [op, batch] = *call;
        return as_arrays(make(std::move(op), std::move(batch), stream()));
      }
    }
    return mx::vmap(steps_of(op_, stream()), axes)(inputs);
  }
}

template <typename Op>
std::pair<Arrays, std::vector<int>> Node<Op>::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  return with_leading_axes(
      for_any_size(mapped(inputs, axes), {&inputs}, stream()));
}

template <typename Op>
bool Node<Op>::is_equivalent(const Primitive& other) const {
  const auto& node = static_cast<const Node&>(other);
  return op_ == node.op_ &&
      (!kHasSeveralOutputs<Op> || merging_.into(node.merging_));
}

template <typename Op>
std::vector<mx::Shape> Node<Op>::output_shapes(const Arrays& inputs) {
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

template <typename Op>
Outputs<Op> node(Op op, Arrays inputs, mx::Stream stream) {
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

// Whether the op's kernels for these inputs agree with its fallback on a sample
// (common/self_check.h). The inputs are evaluated, unless it is dense.
template <typename Op>
bool passes_self_check(
    const Op& op,
    const Arrays& inputs,
    mx::Stream stream,
    Checked how) {
  if (is_empty(op, inputs)) {
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
  std::vector<MemoryLayout> layouts(inputs.size());
  if (how != Checked::Dense) {
    std::ranges::transform(inputs, layouts.begin(), MemoryLayout::of);
    if (std::ranges::count(layouts, MemoryLayout{}) != std::ssize(layouts)) {
      for (const auto& [offset, steps, axes, alignment] : layouts) {
        key.numbers.insert(key.numbers.end(), {offset, steps, axes, alignment});
      }
      key.numbers.push_back(how == Checked::Copied);
    }
  }
  auto sample = [&] {
    auto few = op.sampled(inputs, stream);
    bool donates = false;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      for (auto* donor : op.donors(inputs, i, stream)) {
        donates |= donor != nullptr;
      }
    }
    return self_check::Sample{
        [&](mx::Stream s) {
          auto rows = op.sample(inputs, s);
          for (size_t i = 0; i < rows.size(); ++i) {
            rows[i] = laid_out(std::move(rows[i]), layouts[i], s);
          }
          return rows;
        },
        [few](Arrays rows, mx::Stream s) {
          return compared<Op>(as_arrays(node(few, std::move(rows), s)));
        },
        [few](const Arrays& rows, mx::Stream s) {
          return compared<Op>(reference_of(few, rows, s));
        },
        donates,
        how == Checked::Copied};
  };
  return self_check::agrees(
      key,
      stream.device,
      sample,
      [&] { return self_check::described(op.name(), inputs, dtypes[0]); },
      how == Checked::AsGiven ? "strided or unaligned operands are copied"
                              : self_check::kByMlx);
}

// Before the op is in a graph.
template <typename Op>
bool passes_self_check(const Op& op, const Arrays& inputs, mx::Stream stream) {
  static thread_local CallTable<Op, bool> passed; // a verdict takes a lock
  CallKey call(inputs, stream);
  if (passed.find(op, call)) {
    return true;
  }
  bool passes = passes_self_check(op, inputs, stream, Checked::Dense);
  if (passes) {
    passed.add(op, call, true);
  }
  return passes;
}

template <typename Op>
bool suits(const Op& op, const Arrays& inputs, mx::Stream stream) {
  if constexpr (requires { &Op::suits; }) {
    return op.suits(inputs, stream);
  } else {
    return true;
  }
}

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

template <typename Op>
Outputs<Op> make(Op op, Arrays inputs, mx::Stream stream) {
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
