// Copyright © 2026 mlx_norms contributors

#include "csrc/op/eval_cpu.h"
#include "csrc/matmul/matmul.h"

namespace mlx_norms {

template void Node<Matmul>::eval_cpu(const Arrays&, Arrays&);

} // namespace mlx_norms
