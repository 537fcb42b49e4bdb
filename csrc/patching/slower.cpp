// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/slower.h"

#include <algorithm>

namespace mlx_norms {

namespace {

const char* name(Backend backend) {
  switch (backend) {
    case Backend::Cpu:
      return "cpu";
    case Backend::Metal:
      return "metal";
    case Backend::Cuda:
      return "cuda";
  }
  return "";
}

const char* name(bool residual, bool centre) {
  if (residual) {
    return centre ? "add_layer" : "add_rms";
  }
  return centre ? "layer" : "rms";
}

// The cells of a backend, by op and dtype, so that a call looks at few.
using Cells = std::vector<SlowerCell>;
Cells cells[3][2][2][3];

Cells& cells_of(Backend backend, bool residual, bool centre, mx::Dtype dtype) {
  int type = dtype == mx::float32 ? 0 : dtype == mx::float16 ? 1 : 2;
  return cells[static_cast<int>(backend)][residual][centre][type];
}

} // namespace

void set_slower_cells(const Cells& table) {
  for (auto backend : {Backend::Cpu, Backend::Metal, Backend::Cuda}) {
    for (bool residual : {false, true}) {
      for (bool centre : {false, true}) {
        for (auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
          auto& some = cells_of(backend, residual, centre, dtype);
          some.clear();
          for (const auto& cell : table) {
            if (cell.backend == name(backend) &&
                cell.op == name(residual, centre) && cell.dtype == dtype) {
              some.push_back(cell);
            }
          }
        }
      }
    }
  }
}

bool is_slower(Backend backend, const NormSpec& spec, const mx::array& x) {
  const auto& some = cells_of(backend, spec.residual, spec.centre, x.dtype());
  if (some.empty() || x.size() == 0) {
    return false;
  }
  int64_t length = x.shape(-1);
  int64_t rows = x.size() / length;
  return std::any_of(some.begin(), some.end(), [&](const SlowerCell& cell) {
    return cell.rows_from <= rows && rows <= cell.rows_to &&
        cell.length_from <= length && length <= cell.length_to;
  });
}

} // namespace mlx_norms
