// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>
#include <vector>

#include "csrc/gpu/launch_plan.h"
#include "mlx/backend/metal/device.h"

namespace mlx_norms {

// A kernel that was compiled for some function constants.
struct Pipeline {
  std::string name; // of the kernel and its constants, as MLX keeps it
  MTL::ComputePipelineState* state;
  uint32_t most_threads; // that a threadgroup may have
};

// Built when it is first asked for. Throws KernelError if it cannot be built.
const Pipeline& pipeline_for(const Launch& launch);

// All that were asked for so far.
std::vector<Pipeline> pipelines();

} // namespace mlx_norms
