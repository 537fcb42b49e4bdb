// Copyright © 2026 mlx_norms contributors

#include "csrc/norm.h"
#include "eval.h"

namespace mlx_norms {

void Norm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void NormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

} // namespace mlx_norms
