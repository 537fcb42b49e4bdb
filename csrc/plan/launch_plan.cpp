// Copyright © 2026 mlx_norms contributors

#include "csrc/plan/launch_plan.h"

#include "mlx/allocator.h"

namespace mlx_norms {

mx::array LaunchPlan::temporary(mx::Shape shape, mx::Dtype dtype) {
  mx::array a(std::move(shape), dtype, nullptr, {});
  a.set_data(mx::allocator::malloc(a.nbytes()));
  temporaries.push_back(a);
  return a;
}

} // namespace mlx_norms
