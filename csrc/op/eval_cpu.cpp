// Copyright © 2026 mlx_norms contributors
//
// Evaluation on the CPU. The software Metal device (tools/hostmetal) has
// another one in place of this file.

#include "csrc/cpu/memory.h"
#include "csrc/cpu/threads.h"
#include "csrc/op/node.h"

namespace mlx_norms {

void Node::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  cpu::thread_count(); // may throw, so before any work is dispatched
  prepare(inputs, outputs, [](array& out, mx::Stream, const Donors& from) {
    cpu::allocate(out, {from[0], from[1], from[2], from[3]});
  });
  op_->eval_cpu(inputs, outputs, stream());
}

} // namespace mlx_norms
