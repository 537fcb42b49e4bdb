// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/launch_plan.h"

#include "csrc/gpu/memory.h"

namespace mlx_norms {

const mx::array& LaunchPlan::temporary(mx::Shape shape, mx::Dtype dtype) {
  mx::array a(std::move(shape), dtype, nullptr, {});
  gpu::allocate(a, stream);
  return temporaries.emplace_back(std::move(a));
}

} // namespace mlx_norms
