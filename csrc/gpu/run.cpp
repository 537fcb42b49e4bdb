// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/run.h"

#include <mutex>
#include <set>

#include "csrc/common/backend.h"
#include "csrc/common/interpreter.h"
#include "csrc/common/self_check.h"
#include "csrc/gpu/rows.h"

namespace mlx_norms {

namespace {

bool is_aligned(const array& a) {
  return a.offset() % 16 == 0;
}

} // namespace

bool is_checked(const LaunchPlan& plan) {
  if (backend_of(plan.stream) != Backend::Metal || !self_check::enabled() ||
      self_check::is_running()) {
    return true;
  }
  return std::ranges::all_of(plan.launches, [&](const Launch& launch) {
    return self_check::has_launched(kernel_of(launch, plan.stream));
  });
}

Arrays plain_inputs(
    const Arrays& inputs,
    mx::Stream stream,
    const std::function<bool(Checked)>& passes) {
  LaunchPlan copies(stream);
  Arrays plain;
  for (const auto& a : inputs) {
    bool has_layout = a.ndim() > 0; // one element has none
    plain.push_back(
        has_layout && !(a.flags().row_contiguous && is_aligned(a))
            ? make_dense(a, copies)
            : a);
  }
  if (passes && !is_checked(copies) && !passes(Checked::Copied)) {
    throw KernelError(
        "[mlx_norms] The Metal kernel that copies operands failed its check.");
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

bool copies_always() {
  return self_check::copies_operands();
}

void warn_of_layout(const KernelError& refused) {
  if (!refused.lasting) {
    return;
  }
  static std::mutex mutex;
  static auto& told = *new std::set<std::string>();
  {
    std::lock_guard lock(mutex);
    if (!told.insert(refused.what()).second) {
      return;
    }
  }
  warn(
      refused.what() +
      std::string(
          " It is for operands that are strided or not aligned, which are "
          "copied instead. Please report this with the output of `python -m "
          "mlx_norms selftest`."));
}

void throw_to_user(const KernelError& error) {
  if (self_check::is_running()) {
    throw;
  }
  std::string text = error.what();
  text +=
      " MLX's operations cannot take its place, as the graph that is evaluated "
      "holds it. ";
  text += self_check::enabled()
      ? "Leave this op to MLX: call its own function, or mlx_norms.unpatch() "
        "and unset MLX_NORMS_PATCH where a patch has put it there. Please "
        "report this with the output of `python -m mlx_norms selftest`."
      : "Unset MLX_NORMS_SELF_CHECK: then each kernel is tried before it is in "
        "a graph.";
  throw KernelError(text, error.lasting);
}

} // namespace mlx_norms
