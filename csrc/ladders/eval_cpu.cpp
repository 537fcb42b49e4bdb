// Copyright © 2026 mlx_norms contributors

#include "csrc/op/eval_cpu.h"
#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"
#include "csrc/op/launched.h"

namespace mlx_norms {

// These refuse CPU streams.
template void Node<LayerNormRung>::eval_cpu(const Arrays&, Arrays&);
template void Node<Launched>::eval_cpu(const Arrays&, Arrays&);
template void Node<SgemmRung>::eval_cpu(const Arrays&, Arrays&);

} // namespace mlx_norms
