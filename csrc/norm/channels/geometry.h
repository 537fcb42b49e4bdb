// Copyright © 2026 mlx_norms contributors

#pragma once

#include <cstdint>

namespace mlx_norms {

// How columns are spread over threads (kernels/norm/channels/columns.h). This
// depends on the channels, on inner and on the dtype alone, so that norms are
// batch-invariant.
struct ChannelGeometry {
  int width;   // adjoining columns per thread: N
  int vectors; // channels per thread and chunk: V
  int lanes;   // of a SIMD-group along the columns, a power of two
  int simds;   // per threadgroup
  bool looped; // the columns have several chunks
  int count;   // a thread's channels of a chunk, of the thread with the most
  int full;    // and of the one with the fewest
  int held;    // registers of an array's columns
  bool whole;  // each lane has columns, however many samples there are

  // `max_vectors` is the kernel's largest V. Threads with few registers have
  // at most four columns, and two channels of a loop.
  ChannelGeometry(
      int channels,
      int64_t inner,
      int item_size,
      int max_vectors,
      bool few_registers);
};

// A small inner size of the same geometry and alignment.
int places_like(int64_t inner);

} // namespace mlx_norms
