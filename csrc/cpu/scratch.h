// Copyright © 2026 mlx_norms contributors

#pragma once

#include <new>

#include "csrc/cpu/rows.h"

namespace mlx_norms::cpu {

// Padded rows, aligned so that no vector crosses a cache line.
class Scratch {
 public:
  Scratch(int64_t width, int64_t rows)
      : data_(
            static_cast<float*>(::operator new(
                rows * padded(width) * sizeof(float),
                std::align_val_t(kAlignment)))) {}
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    ::operator delete(data_, std::align_val_t(kAlignment));
  }

  float* data() const {
    return data_;
  }

 private:
  static constexpr size_t kAlignment = 64;
  float* data_;
};

} // namespace mlx_norms::cpu
