// Copyright © 2026 mlx_norms contributors
//
// Metal's compiler is another process, which may falter: be interrupted, or
// fail for want of memory.

#pragma once

#include <exception>
#include <string>

namespace mlx_norms {

// Whether the failure is what the compiler says of a line of the text, as it
// would another time.
inline bool is_of_text(const std::string& failure) {
  return failure.find(": error: ") != std::string::npos ||
      failure.find(": fatal error: ") != std::string::npos;
}

// f(), twice if it throws what is not of the text.
template <typename F>
auto ask_compiler(F f) {
  try {
    return f();
  } catch (const std::exception& e) {
    if (is_of_text(e.what())) {
      throw;
    }
  }
  return f();
}

} // namespace mlx_norms
