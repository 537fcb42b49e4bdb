// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/primitive.h"

namespace mlx_norms {

namespace {

[[noreturn]] void refuse_cpu() {
  // On CPU streams MLX's ops are used instead.
  throw std::logic_error("[mlx_norms] A GPU's group norm is on the CPU.");
}

} // namespace

void GroupNorm::eval_cpu(const Arrays&, Arrays&) {
  refuse_cpu();
}

void GroupNormVJP::eval_cpu(const Arrays&, Arrays&) {
  refuse_cpu();
}

} // namespace mlx_norms
