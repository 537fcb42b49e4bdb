// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>
#include <vector>

#include "csrc/gpu/launch_plan.h"
#include "mlx/backend/metal/device.h"

namespace mlx_norms {

// A kernel compiled for one set of function constants.
struct Pipeline {
  std::string name; // of the kernel and its constants, as MLX stores it
  MTL::ComputePipelineState* state;
  uint32_t max_threads; // per threadgroup
  uint32_t group;       // threads of those that it was built for
};

// Built at first use. Throws KernelError if it cannot be built.
const Pipeline& pipeline_for(const Launch& launch);

// All pipelines built so far.
std::vector<Pipeline> pipelines();

} // namespace mlx_norms
