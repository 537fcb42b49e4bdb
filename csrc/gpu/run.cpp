// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/run.h"

#include <mutex>
#include <set>

#include "csrc/common/axes.h"
#include "csrc/common/interpreter.h"
#include "csrc/gpu/rows.h"

namespace mlx_norms {

namespace {

bool is_aligned(const array& a) {
  return a.offset() % 16 == 0;
}

// Whether it broadcasts to x along more axes than the self-check has.
bool spreads(const array& a, const array& x) {
  if (a.ndim() < 3 || a.ndim() != x.ndim() || a.shape() == x.shape()) {
    return false;
  }
  for (size_t i = 0; i < a.ndim(); ++i) {
    if (a.shape(i) != 1 && a.shape(i) != x.shape(i)) {
      return false;
    }
  }
  auto view = broadcast_view(a, x.shape());
  return row_axes(view).size() > 2;
}

} // namespace

Arrays plain_inputs(const Arrays& inputs, mx::Stream stream) {
  LaunchPlan copies(stream);
  Arrays plain;
  for (const auto& a : inputs) {
    if (a.ndim() == 0) { // one element has no layout
      plain.push_back(a);
    } else if (spreads(a, inputs[0])) {
      auto view = broadcast_view(a, inputs[0].shape());
      plain.push_back(make_dense(view, copies));
    } else if (!a.flags().row_contiguous || !is_aligned(a)) {
      plain.push_back(make_dense(a, copies));
    } else {
      plain.push_back(a);
    }
  }
  encode(std::move(copies));
  return plain;
}

void align_outputs(Arrays& outputs, mx::Stream stream) {
  for (auto& out : outputs) {
    if (!is_aligned(out)) {
      gpu::allocate(out, stream);
    }
  }
}

void warn_of_layout(const std::string& refused) {
  static std::mutex mutex;
  static auto& told = *new std::set<std::string>();
  {
    std::lock_guard lock(mutex);
    if (!told.insert(refused).second) {
      return;
    }
  }
  warn(
      refused +
      " It is for operands that are strided or not aligned, which are copied "
      "instead. Please report this with the output of `python -m mlx_norms "
      "selftest`.");
}

} // namespace mlx_norms
