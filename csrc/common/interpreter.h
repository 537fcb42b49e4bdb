// Copyright © 2026 mlx_norms contributors
//
// What the core needs of Python, from any thread.

#pragma once

#include <functional>
#include <string>

namespace mlx_norms {

// Runs f without the interpreter's lock, which other threads may need to
// finish.
void without_interpreter(const std::function<void()>& f);

template <typename T>
T without_interpreter(T (*f)()) {
  T result;
  without_interpreter([&] { result = f(); });
  return result;
}

// Raises a RuntimeWarning. Throws if warnings are errors.
void warn(const std::string& text);

} // namespace mlx_norms
