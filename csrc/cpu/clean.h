// Copyright © 2026 mlx_norms contributors
//
// Kernels that leave no upper half of a vector register in use, with which SSE
// code, as MLX's, takes several times as long. GCC forgets to end that after
// calls of functions that take vectors, and before tail calls of functions
// whose registers it knows.

#pragma once

#include "csrc/cpu/simd.h"

namespace {

template <auto kKernel>
struct Clean;

template <typename... Args, void (*kKernel)(Args...)>
struct Clean<kKernel> {
  static void call(Args... args) {
    kKernel(args...);
#if defined(__AVX__)
    _mm256_zeroupper();
#endif
  }
};

// A table of kernels has this in place of the kernel.
template <auto kKernel>
constexpr auto clean = Clean<kKernel>::call;

} // namespace
