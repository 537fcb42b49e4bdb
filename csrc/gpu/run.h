// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/recorded.h"

namespace mlx_norms {

// The inputs as the self-check has them: dense, aligned, and broadcast along
// at most two axes. The launches that copy others are encoded.
Arrays plain_inputs(const Arrays& inputs, mx::Stream stream);

// Allocates outputs anew that are in a donated buffer and not aligned.
void align_outputs(Arrays& outputs, mx::Stream stream);

// Warns, once for each text, that a kernel was refused for a layout.
void warn_of_layout(const std::string& refused);

// Encodes the op's plan, or one that was recorded. A plan that cannot be is
// remembered as null, so that this is found out once.
template <typename Op>
void run_op(
    const Op& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  static thread_local CallTable<Op, std::unique_ptr<RecordedLaunch>> calls;
  CallKey key(inputs, outputs, stream);
  auto* known = calls.find(op, key);
  if (known && *known) {
    ++launches_encoded_again();
    return encode(**known, inputs, outputs, stream);
  }
  if (known || !calls.is_made_again(key)) {
    return encode(op.plan(inputs, outputs, stream));
  }
  auto named = with_names_of_their_own(inputs);
  auto plan = op.plan(named, outputs, stream);
  auto recorded = RecordedLaunch::of(plan, named, outputs);
  encode(std::move(plan));
  calls.add(op, key, std::move(recorded));
}

// Metal compiles a kernel for a layout only now, long after the self-check; if
// it refuses, the operands are copied, and the kernel that was checked runs.
template <typename Op>
void run(
    const Op& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  try {
    run_op(op, inputs, outputs, stream);
  } catch (const UnbuiltKernel& refused) {
    auto plain = plain_inputs(inputs, stream);
    align_outputs(outputs, stream);
    encode(op.plan(plain, outputs, stream));
    warn_of_layout(refused.what());
  }
}

} // namespace mlx_norms
