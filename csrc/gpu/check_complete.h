// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// Null: this build has no kernel of this name.
const KernelNeeds* needs_of(const std::string& kernel);

// Throws KernelError if the launch leaves out what its kernel needs.
void check_complete(const Launch& launch);

} // namespace mlx_norms
