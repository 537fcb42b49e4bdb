// Copyright © 2026 mlx_norms contributors

#pragma once

#include <type_traits>

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/recorded.h"

namespace mlx_norms {

// On which inputs an op's kernels are checked: dense ones, those that lie in
// memory as the call's do, or dense copies of these.
enum class Checked { Dense, AsGiven, Copied };

// Whether a self-check that agreed has launched all of the plan's kernels, or
// none is wanted.
bool is_checked(const LaunchPlan& plan);

// Dense and aligned copies of the inputs that are not. passes(Checked::Copied)
// checks the kernel that copies, if there is such a check.
Arrays plain_inputs(
    const Arrays& inputs,
    mx::Stream stream,
    const std::function<bool(Checked)>& passes);

// Allocates outputs anew that are in a donated buffer and not aligned.
void align_outputs(Arrays& outputs, mx::Stream stream);

// Whether this thread's self-check is of copies.
bool copies_always();

// Warns, once for each text, that a kernel was refused for a layout.
void warn_of_layout(const KernelError& refused);

// Throws the error, with what the user can do: the graph that is evaluated
// holds the op, so MLX's operations cannot take its place.
[[noreturn]] void throw_to_user(const KernelError& error);

// Encodes the op's plan, or one that was recorded. A plan that cannot be is
// remembered as null, so that this is found out once. False: its kernels do not
// pass their check.
template <typename Op, typename F>
bool run_as_given(
    const Op& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream,
    F passes) {
  static thread_local CallTable<Op, std::unique_ptr<RecordedLaunch>> calls;
  CallKey key(inputs, outputs, stream);
  auto* known = calls.find(op, key);
  if (known && *known) {
    ++launches_encoded_again();
    encode(**known, inputs, outputs, stream);
    return true;
  }
  if (known) {
    encode(op.plan(inputs, outputs, stream));
    return true;
  }
  bool records = calls.is_made_again(key);
  Arrays names_of_their_own;
  if (records) {
    names_of_their_own = with_names_of_their_own(inputs);
  }
  const auto& named = records ? names_of_their_own : inputs;
  auto plan = op.plan(named, outputs, stream);
  if constexpr (!std::is_null_pointer_v<F>) {
    if (!is_checked(plan) && !(passes(Checked::AsGiven) && is_checked(plan))) {
      return false;
    }
  }
  auto recorded = records ? RecordedLaunch::of(plan, named, outputs) : nullptr;
  encode(std::move(plan));
  if (records) {
    calls.add(op, key, std::move(recorded));
  }
  return true;
}

template <typename Op, typename F>
void run_on_copies(
    const Op& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream,
    F passes) {
  auto plain = plain_inputs(inputs, stream, passes);
  align_outputs(outputs, stream);
  auto plan = op.plan(plain, outputs, stream);
  if constexpr (!std::is_null_pointer_v<F>) {
    if (!is_checked(plan) && !passes(Checked::Dense)) {
      throw KernelError(
          std::string("[mlx_norms] The Metal kernel of ") + op.name() +
          " failed its check.");
    }
  }
  encode(std::move(plan));
}

// passes(Checked) checks the op's kernels; null: it has no check. Which kernel
// a layout has on Metal is only known now, long after the self-check of dense
// operands, so it is checked when it is first met. If it is refused or wrong,
// the operands are copied, and the kernel that was checked runs.
template <typename Op, typename F>
void run(
    const Op& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream,
    F passes) {
  std::optional<UnbuiltKernel> refused;
  try {
    try {
      if (!copies_always() &&
          run_as_given(op, inputs, outputs, stream, passes)) {
        return;
      }
    } catch (const UnbuiltKernel& error) {
      refused = error;
    }
    run_on_copies(op, inputs, outputs, stream, passes);
  } catch (const KernelError& error) {
    throw_to_user(error);
  }
  if (refused) {
    warn_of_layout(*refused);
  }
}

} // namespace mlx_norms
