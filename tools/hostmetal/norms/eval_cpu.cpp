// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/group_norm.h"
#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"
#include "csrc/linear/norm_linear.h"
#include "csrc/matmul/matmul.h"
#include "csrc/norm/channels/channel_norm.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/op/launched.h"
#include "csrc/rope/norm_rope.h"
#include "eval.h"

namespace mlx_norms {

template <typename Op>
void Node<Op>::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  hostmetal::eval(*this, inputs, outputs);
}

template void Node<NormLinear>::eval_cpu(const Arrays&, Arrays&);
template void Node<Norm>::eval_cpu(const Arrays&, Arrays&);
template void Node<NormVJP>::eval_cpu(const Arrays&, Arrays&);
template void Node<ChannelNorm>::eval_cpu(const Arrays&, Arrays&);
template void Node<ChannelNormVJP>::eval_cpu(const Arrays&, Arrays&);
template void Node<NormAddNorm>::eval_cpu(const Arrays&, Arrays&);
template void Node<NormAddNormVJP>::eval_cpu(const Arrays&, Arrays&);
template void Node<GroupNorm>::eval_cpu(const Arrays&, Arrays&);
template void Node<GroupNormVJP>::eval_cpu(const Arrays&, Arrays&);
template void Node<Matmul>::eval_cpu(const Arrays&, Arrays&);
template void Node<LayerNormRung>::eval_cpu(const Arrays&, Arrays&);
template void Node<SgemmRung>::eval_cpu(const Arrays&, Arrays&);
template void Node<Launched>::eval_cpu(const Arrays&, Arrays&);
template void Node<NormRope>::eval_cpu(const Arrays&, Arrays&);

} // namespace mlx_norms
