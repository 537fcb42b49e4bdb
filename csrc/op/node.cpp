// Copyright © 2026 mlx_norms contributors

#include "csrc/op/node.h"

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/common/sum.h"
#include "csrc/cpu/settings.h"
#include "csrc/gpu/rows.h"
#include "csrc/op/run.h"

namespace mlx_norms {

void Node::prepare(
    const Arrays& inputs,
    Arrays& outputs,
    void (*allocate)(array& out, mx::Stream s, const Donors& from)) {
  check_in_eval(stream(), [&] { op_->check(inputs); });
  release_inputs(inputs, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    allocate(outputs[i], stream(), op_->donors(inputs, i, stream()));
  }
}

void Node::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  prepare(inputs, outputs, [](array& out, mx::Stream s, const Donors& from) {
    gpu::allocate(out, s, {from[0], from[1], from[2], from[3]});
  });
  run(op_, inputs, outputs, stream());
}

Arrays Node::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  return for_any_size(
      op_->jvp(primals, tangents, argnums, stream()),
      {&primals, &tangents},
      stream());
}

Arrays Node::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  return for_any_size(
      op_->vjp(primals, cotangents, argnums, outputs, stream()),
      {&primals, &cotangents, &outputs},
      stream());
}

std::pair<Arrays, std::vector<int>> Node::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  return with_leading_axes(
      for_any_size(op_->mapped(inputs, axes, stream()), {&inputs}, stream()));
}

bool Node::is_equivalent(const Primitive& other) const {
  const auto& node = static_cast<const Node&>(other);
  if (!op_->equals(*node.op_)) {
    return false;
  }
  return op_->dtypes.size() == 1 ||
      (!node.merged_.load(std::memory_order_relaxed) &&
       !merged_.exchange(true, std::memory_order_relaxed));
}

std::vector<mx::Shape> Node::output_shapes(const Arrays& inputs) {
  std::vector<mx::Shape> shapes;
  shapes.reserve(op_->dtypes.size());
  for (size_t i = 0; i < op_->dtypes.size(); ++i) {
    shapes.push_back(op_->shape(inputs, i));
  }
  return shapes;
}

// As array::make_arrays, with fewer allocations.
Arrays node(OpPtr op, Arrays inputs, mx::Stream stream) {
  auto primitive = std::make_shared<Node>(stream, std::move(op));
  const auto& of = primitive->op();
  auto n = of.dtypes.size();
  Arrays outputs;
  outputs.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    auto shape = of.shape(inputs, i);
    bool last = i + 1 == n;
    outputs.emplace_back(
        std::move(shape),
        of.dtypes[i],
        primitive,
        last ? std::move(inputs) : inputs);
  }
  make_siblings(outputs);
  return outputs;
}

bool runs_kernel(const OpPtr& op, const Arrays& inputs, mx::Stream stream) {
  if (backend_of(stream) == Backend::Cpu) {
    cpu::check_settings();
  }
  return runs_kernels(
      stream, [&] { return passes_self_check(op, inputs, stream); });
}

bool has_kernel(const OpPtr& op, const Arrays& inputs, mx::Stream stream) {
  return op->suits(inputs, stream) && runs_kernel(op, inputs, stream);
}

Arrays make(OpPtr op, Arrays inputs, mx::Stream stream) {
  bool suits = op->suits(inputs, stream);
  if (suits && runs_kernel(op, inputs, stream)) {
    return node(std::move(op), std::move(inputs), stream);
  }
  return for_any_size(
      suits ? op->fallback(inputs, stream) : op->steps(inputs, stream),
      {&inputs},
      stream);
}

} // namespace mlx_norms
