// Copyright © 2026 mlx_norms contributors

#include "csrc/op/eval_cpu.h"
#include "csrc/linear/norm_linear.h"

namespace mlx_norms {

template void Node<NormLinear>::eval_cpu(const Arrays&, Arrays&);

} // namespace mlx_norms
