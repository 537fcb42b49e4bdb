// Copyright © 2026 mlx_norms contributors

// How the extension finds its kernels where the build had a Metal compiler.

#include <nanobind/nanobind.h>

#include "csrc/metal/library.h"

NB_MODULE(_metallib, m) {
  m.def("load", [] {
    auto& device = mlx::core::metal::device(mlx::core::Device::gpu);
    mlx_norms::kernel_library(device);
  });
}
