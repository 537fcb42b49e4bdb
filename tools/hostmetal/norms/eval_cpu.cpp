// Copyright © 2026 mlx_norms contributors
//
// In place of csrc/op/eval_cpu.cpp and of each op's: no op runs on the CPU.

#include "csrc/norm/norm.h"
#include "csrc/rope/norm_rope.h"
#include "eval.h"

#define NOT_ON_THE_CPU(T)                                               \
  void T::eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s) \
      const {                                                           \
    Op::eval_cpu(inputs, outputs, s);                                   \
  }

namespace mlx_norms {

void Node::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

NOT_ON_THE_CPU(Norm)
NOT_ON_THE_CPU(NormVJP)
NOT_ON_THE_CPU(NormRope)

} // namespace mlx_norms
