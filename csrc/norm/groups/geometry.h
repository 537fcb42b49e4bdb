// Copyright © 2026 mlx_norms contributors
//
// How a sample's positions and channels are spread over threads. Where sums are
// taken this depends on the sizes of a sample, the dtype and the device alone,
// so that norms are batch-invariant.

#pragma once

#include <optional>

#include "csrc/common/backend.h"

namespace mlx_norms {

// The threads of kernels/group_norm/channel_threads.h, for launches after one
// another.
struct SampleGeometry {
  static constexpr int kThreads = 256;

  int channels;
  int positions;
  int width; // channels per thread: N
  int lanes; // threads along the channels
  int rows;  // and along positions
  int steps; // positions per thread
  int blocks;
  int chunks;

  SampleGeometry(int channels, int positions, int item_size);

  int chunk_size() const {
    return rows * steps;
  }
  // The geometry of launches without sums, which may have any chunks: of fewer
  // steps, where there would be fewer threadgroups than this.
  SampleGeometry without_sums(int samples, int threadgroups) const;
};

// The threads of group_statistics, which merges what the chunks of some groups
// have.
struct StatisticsGeometry {
  int across; // groups that a threadgroup takes
  int simds;  // of a threadgroup
  int blocks;

  StatisticsGeometry(const SampleGeometry& sample, int groups, bool strided);
};

// The threads of group_gradient_sums, which adds up what the chunks of a group
// have.
struct SumsGeometry {
  bool group_is_channel; // and a threadgroup takes `width` of them
  int width;             // channels that a threadgroup takes at once
  int threads;           // of a threadgroup
  int blocks;

  SumsGeometry(const SampleGeometry& sample, int groups);
};

// The threads of kernels/group_norm/held_groups.metal, for a single launch.
struct HeldGeometry {
  int positions;     // of a sample
  int width;         // channels of a vector: N
  bool differ;       // a thread's channels are not all of one group
  int adjoining = 0; // vectors whose channels adjoin
  int across = 0;    // such pieces of a position
  int groups = 0;    // held by a threadgroup
  int vectors = 0;   // per thread, each of one position: V
  int rows = 0;      // positions at once

  int lanes() const {
    return adjoining * across;
  }
  int threads() const; // of a threadgroup

  // None: the groups of a sample are too large, or lie at less than 32 bytes.
  static std::optional<HeldGeometry> choose(
      int channels,
      int positions,
      int groups,
      bool strided,
      int item_size,
      Backend backend);
};

} // namespace mlx_norms
