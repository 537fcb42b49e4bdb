// Copyright © 2026 mlx_norms contributors

#pragma once

#include <functional>

#include "csrc/common/types.h"

namespace mlx_norms {

// Runs f, which must not throw, on its own thread and stream, and waits without
// the interpreter's lock. Errors of the caller's stream and of f do not reach
// each other, and a transformation that the caller is in does not keep f's
// graph alive. One f runs at a time; f may call this function.
void on_check_stream(
    mx::Device device,
    const std::function<void(mx::Stream)>& f);

} // namespace mlx_norms
