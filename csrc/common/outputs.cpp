// Copyright © 2026 mlx_norms contributors

#include "csrc/common/outputs.h"

#include "mlx/backend/common/utils.h"

namespace mlx_norms {

namespace mx = mlx::core;

void release_inputs(
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  for (auto& out : outputs) {
    if (&out.inputs() != &inputs && !out.is_tracer()) {
      out.inputs().clear();
    }
  }
}

void allocate(
    mx::array& out,
    mx::Stream stream,
    std::initializer_list<const mx::array*> from) {
  for (auto* in : from) {
    if (in && in->size() == out.size() && in->flags().row_contiguous &&
        mx::is_donatable(*in, out)) {
      out.copy_shared_buffer(*in);
      return;
    }
  }
  allocate_new(out, stream);
}

} // namespace mlx_norms
