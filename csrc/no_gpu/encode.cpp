// Copyright © 2026 mlx_norms contributors

#include <stdexcept>

#include "csrc/plan/launch_plan.h"

namespace mlx_norms {

// The ops put no node on a GPU stream, so this is a mistake.
void encode(LaunchPlan, mx::Stream) {
  throw std::runtime_error("[mlx_norms] This build has no kernels for a GPU.");
}

} // namespace mlx_norms
