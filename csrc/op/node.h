// Copyright © 2026 mlx_norms contributors
//
// The primitive that MLX sees: an op on a stream.

#pragma once

#include <atomic>

#include "csrc/op/op.h"
#include "mlx/primitives.h"

namespace mlx_norms {

class Node final : public mx::Primitive {
 public:
  Node(mx::Stream stream, OpPtr op) : Primitive(stream), op_(std::move(op)) {}

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
    return *op_;
  }
  const char* name() const override {
    return op_->name();
  }

  // How and when a patched call is counted (csrc/patching/report.cpp); 0: it is
  // of none.
  mutable std::atomic<uint32_t> counted_as = 0;

 private:
  // Checks the inputs, and allocates the outputs.
  void prepare(
      const Arrays& inputs,
      Arrays& outputs,
      void (*allocate)(array& out, mx::Stream s, const Donors& from));

  OpPtr op_;
  // MLX compares each pair of two nodes' outputs when it merges equal nodes, as
  // mx.compile does, but only in the first comparison does it know which of the
  // nodes comes first. Later ones may merge the first into the second and fail
  // with an IndexError. So a node that was found equivalent to one before it is
  // not compared again.
  mutable std::atomic<bool> merged_ = false;
};

// The outputs by the op's kernel. The inputs have been checked.
Arrays node(OpPtr op, Arrays inputs, mx::Stream stream);

// Whether the op's kernel, if it suits, runs on the stream.
bool runs_kernel(const OpPtr& op, const Arrays& inputs, mx::Stream stream);

// Whether it suits, too.
bool has_kernel(const OpPtr& op, const Arrays& inputs, mx::Stream stream);

// The outputs by the op's kernel, by other ops if it does not suit, or by MLX's
// ops if it does not run. The inputs have been checked.
Arrays make(OpPtr op, Arrays inputs, mx::Stream stream);

template <std::derived_from<Op> T>
Arrays node(T op, Arrays inputs, mx::Stream stream) {
  return node(shared(std::move(op)), std::move(inputs), stream);
}
template <std::derived_from<Op> T>
Arrays make(T op, Arrays inputs, mx::Stream stream) {
  return make(shared(std::move(op)), std::move(inputs), stream);
}

} // namespace mlx_norms
