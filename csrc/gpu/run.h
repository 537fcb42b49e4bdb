// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// The inputs as the self-check has them: dense, aligned, and broadcast along
// at most two axes. The launches that copy others are encoded.
Arrays plain_inputs(const Arrays& inputs, mx::Stream stream);

// Allocates outputs anew that are in a donated buffer and not aligned.
void align_outputs(Arrays& outputs, mx::Stream stream);

// Warns, once for each text, that a kernel was refused for a layout.
void warn_of_layout(const std::string& refused);

// Encodes the plan that plan_of(inputs) makes. Metal compiles a kernel for a
// layout only now, long after the self-check; if it refuses, the operands are
// copied, and the kernel that was checked runs.
template <typename F>
void run(const Arrays& inputs, Arrays& outputs, mx::Stream stream, F plan_of) {
  try {
    return encode(plan_of(inputs));
  } catch (const UnbuiltKernel& refused) {
    auto plain = plain_inputs(inputs, stream);
    align_outputs(outputs, stream);
    encode(plan_of(plain));
    warn_of_layout(refused.what());
  }
}

} // namespace mlx_norms
