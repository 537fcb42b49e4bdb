// Copyright © 2026 mlx_norms contributors

#pragma once

#include <functional>

#include "csrc/common/types.h"

namespace mlx_norms {

// Runs f, which must not throw, on a thread and a stream of its own, and waits
// without the interpreter's lock. An error of the caller's stream stays there,
// one of f does not reach it, and a transformation that the caller is in does
// not keep f's graph alive. One f at a time; f may call this itself.
void on_check_stream(
    mx::Device device,
    const std::function<void(mx::Stream)>& f);

} // namespace mlx_norms
