// Copyright © 2026 mlx_norms contributors
//
// Evaluation on the CPU. The file with an op's eval_cpu instantiates this, so
// that the software Metal device (tools/hostmetal) can have another one.

#pragma once

#include "csrc/cpu/memory.h"
#include "csrc/cpu/threads.h"
#include "csrc/op/define_node.h"

namespace mlx_norms {

template <typename Op>
void Node<Op>::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  if constexpr (requires { &Op::eval_cpu; }) {
    cpu::thread_count(); // may throw, so before any work is dispatched
    prepare(inputs, outputs, [](array& out, const Donors& from) {
      cpu::allocate(out, {from[0], from[1], from[2], from[3]});
    });
    op_.eval_cpu(inputs, outputs, stream());
  } else {
    throw std::logic_error(std::string(name()) + " is a GPU's alone.");
  }
}

} // namespace mlx_norms
