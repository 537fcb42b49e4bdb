// Copyright © 2026 mlx_norms contributors

#include "csrc/common/outputs.h"

#include "mlx/backend/common/utils.h"

namespace mlx_norms {

void release_inputs(const Arrays& inputs, Arrays& outputs) {
  for (auto& out : outputs) {
    if (&out.inputs() != &inputs && !out.is_tracer()) {
      out.inputs().clear();
    }
  }
}

bool take_buffer(array& out, std::initializer_list<const array*> from) {
  for (auto* in : from) {
    if (in && in->size() == out.size() && in->flags().row_contiguous &&
        mx::is_donatable(*in, out)) {
      out.copy_shared_buffer(*in);
      return true;
    }
  }
  return false;
}

} // namespace mlx_norms
