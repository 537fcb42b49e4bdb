// Copyright © 2026 mlx_norms contributors

#include "csrc/op/eval_cpu.h"
#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"

namespace mlx_norms {

// The ladders refuse CPU streams.
template void Node<LayerNormRung>::eval_cpu(const Arrays&, Arrays&);
template void Node<SgemmRung>::eval_cpu(const Arrays&, Arrays&);

} // namespace mlx_norms
