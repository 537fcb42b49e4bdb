// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/primitive.h"
#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"
#include "csrc/linear/primitive.h"
#include "csrc/matmul/primitive.h"
#include "csrc/norm/channels/primitive.h"
#include "csrc/norm/primitive.h"
#include "csrc/norm/sandwich_vjp.h"
#include "eval.h"

namespace mlx_norms {

void Matmul::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void Norm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void NormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void NormAddNorm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void NormAddNormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void ChannelNorm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void ChannelNormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void NormLinear::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void GroupNorm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void GroupNormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void LayerNormRung::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

void SgemmRung::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

} // namespace mlx_norms
