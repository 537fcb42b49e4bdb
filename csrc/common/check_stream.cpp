// Copyright © 2026 mlx_norms contributors

#include "csrc/common/check_stream.h"

#include <optional>

#include "csrc/common/interpreter.h"
#include "csrc/vendor/BS_thread_pool.hpp"

namespace mlx_norms {

void on_check_stream(
    mx::Device device,
    const std::function<void(mx::Stream)>& f) {
  static thread_local std::optional<mx::Stream> own;
  if (own) {
    f(*own);
    return;
  }
  // Never destroyed: the interpreter may be gone by then.
  static auto* thread = new BS::light_thread_pool(1);
  auto done = thread->submit_task([&] {
    static const auto stream = mx::new_stream(device);
    own = stream;
    f(stream);
    own.reset();
  });
  without_interpreter([&] { done.get(); });
}

} // namespace mlx_norms
