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

void make_siblings(Arrays& outputs) {
  if (outputs.size() == 1) {
    return;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    Arrays others;
    others.reserve(outputs.size() - 1);
    others.insert(others.end(), outputs.begin(), outputs.begin() + i);
    others.insert(others.end(), outputs.begin() + i + 1, outputs.end());
    outputs[i].set_siblings(std::move(others), i);
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
