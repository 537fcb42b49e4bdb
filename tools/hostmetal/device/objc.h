// Copyright © 2026 mlx_norms contributors

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hostmetal {

// The integer or pointer arguments of a message.
using Arguments = std::array<uint64_t, 4>;

// What metal-cpp's inline code sends messages to. `Library`, `Pipeline` and the
// like derive from it, and MTL pointers to them are pointers to this base.
class Object {
 public:
  virtual ~Object() = default;

  // The reply to a message that Metal's own object would understand. `result`
  // is where a struct goes, else null.
  virtual uint64_t
  receive(std::string_view selector, const Arguments& arguments, void* result);

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(this);
  }

  template <typename T>
  static T* from(const void* pointer) {
    return static_cast<T*>(static_cast<Object*>(const_cast<void*>(pointer)));
  }
};

} // namespace hostmetal
