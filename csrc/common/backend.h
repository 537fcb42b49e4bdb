// Copyright © 2026 mlx_norms contributors

#pragma once

#include "mlx/stream.h"

namespace mlx_norms {

// The backend whose kernels run on a stream. None: a GPU whose library of MLX
// does not export what CUDA kernels are launched by; MLX's ops run there.
enum class Backend { Cpu, Metal, Cuda, None };

Backend backend_of(mlx::core::Stream stream);

// That of GPU streams. Defined by each GPU's folder.
Backend gpu_backend();

// Whether a GPU's kernels run on a stream, if they agree on Metal.
inline bool has_gpu_kernels(mlx::core::Stream stream) {
  auto backend = backend_of(stream);
  return backend == Backend::Metal || backend == Backend::Cuda;
}

// Whether kernels run on a stream: on Metal if `agrees` says so.
template <typename F>
bool runs_kernels(mlx::core::Stream stream, F agrees) {
  auto backend = backend_of(stream);
  return backend == Backend::Metal ? agrees() : backend != Backend::None;
}

} // namespace mlx_norms
