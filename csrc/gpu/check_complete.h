// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// Throws KernelError if the launch leaves out what its kernel needs.
void check_complete(const Launch& launch);

} // namespace mlx_norms
