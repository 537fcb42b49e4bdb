// Copyright (c) 2026 mlx_norms contributors
//
// The instances of the kernels whose threads hold a row: elements per vector,
// vectors per thread, and the most threads per threadgroup, which divide a
// core's registers. csrc/gpu/geometry.cpp chooses among them.

#pragma once

// A row of one array.
#define FOR_FORWARD_ON_CUDA(OF) \
  OF(4, 1, 1024)                \
  OF(4, 2, 1024)                \
  OF(4, 3, 1024)                \
  OF(4, 4, 1024)                \
  OF(4, 6, 1024)                \
  OF(4, 8, 1024)                \
  OF(8, 1, 1024)                \
  OF(8, 2, 1024)                \
  OF(8, 3, 1024)                \
  OF(8, 4, 1024)                \
  OF(8, 5, 1024)
#define FOR_FORWARD_ON_METAL(OF) \
  OF(4, 1, 512)                  \
  OF(4, 2, 512)                  \
  OF(4, 3, 512)                  \
  OF(4, 4, 512)                  \
  OF(4, 4, 1024)                 \
  OF(8, 1, 512)                  \
  OF(8, 2, 512)                  \
  OF(8, 2, 1024)

// A head, of which one SIMD-group has a row.
#define FOR_HEADS_ON_CUDA(OF) \
  OF(4, 1, 256)               \
  OF(4, 2, 256)               \
  OF(4, 3, 256)               \
  OF(4, 4, 256)               \
  OF(8, 1, 256)               \
  OF(8, 2, 256)               \
  OF(8, 3, 256)               \
  OF(8, 4, 256)               \
  OF(8, 5, 256)
#define FOR_HEADS_ON_METAL(OF) \
  OF(4, 1, 256)                \
  OF(4, 2, 256)                \
  OF(4, 3, 256)                \
  OF(4, 4, 256)                \
  OF(4, 6, 256)                \
  OF(4, 8, 256)                \
  OF(8, 1, 256)                \
  OF(8, 2, 256)                \
  OF(8, 3, 256)                \
  OF(8, 4, 256)

// A row of two arrays, and sums of a parameter's gradients.
#define FOR_BACKWARD_ON_CUDA(OF) \
  OF(4, 1, 1024)                 \
  OF(4, 2, 1024)                 \
  OF(4, 3, 1024)                 \
  OF(4, 4, 1024)                 \
  OF(4, 8, 1024)                 \
  OF(8, 1, 1024)                 \
  OF(8, 2, 1024)                 \
  OF(8, 3, 1024)                 \
  OF(8, 4, 1024)
#define FOR_BACKWARD_ON_METAL(OF) \
  OF(4, 1, 256)                   \
  OF(4, 1, 512)                   \
  OF(4, 2, 256)                   \
  OF(4, 2, 512)                   \
  OF(4, 4, 512)                   \
  OF(8, 1, 256)                   \
  OF(8, 1, 512)                   \
  OF(8, 2, 512)

// Rows of four arrays, and sums of two parameters' gradients.
#define FOR_TWO_BACKWARD_ON_CUDA(OF) \
  OF(4, 1, 1024)                     \
  OF(4, 2, 1024)                     \
  OF(4, 3, 1024)                     \
  OF(4, 4, 1024)                     \
  OF(8, 1, 1024)                     \
  OF(8, 2, 1024)                     \
  OF(8, 3, 1024)
#define FOR_TWO_BACKWARD_ON_METAL(OF) \
  OF(4, 1, 256)                       \
  OF(4, 1, 512)                       \
  OF(4, 2, 256)                       \
  OF(4, 2, 512)                       \
  OF(8, 1, 256)                       \
  OF(8, 1, 512)
