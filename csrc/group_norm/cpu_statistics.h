// Copyright © 2026 mlx_norms contributors
//
// How the partial sums of the chunks of a sample become a group's, in double
// and in one order. What is of each channel is a row of `pitch` elements.

#pragma once

#include <algorithm>
#include <cstdint>

namespace mlx_norms::cpu {

// How a sample's positions are shared out. This depends on the sizes of a
// sample alone, so norms are batch-invariant, whatever the number of threads.
struct GroupGeometry {
  int64_t samples;
  int64_t positions; // of a sample
  int64_t channels;
  int64_t groups;
  bool strided;
  int64_t pitch;
  int64_t chunk_rows; // positions of a chunk
  int64_t chunks;

  GroupGeometry(
      int64_t samples,
      int64_t positions,
      int64_t channels,
      int64_t groups,
      bool strided);

  int64_t first_row(int64_t sample, int64_t chunk) const {
    return sample * positions + chunk * chunk_rows;
  }
  int64_t rows_of(int64_t chunk) const {
    return std::min(chunk_rows, positions - chunk * chunk_rows);
  }
  // A row of each channel among others.
  template <typename T>
  T* row(T* rows, int64_t i) const {
    return rows + i * pitch;
  }
  // Values of a group.
  double values() const {
    return static_cast<double>(positions) * (channels / groups);
  }

  int64_t first_channel(int64_t group) const {
    return strided ? group : group * (channels / groups);
  }
  // Sets each channel of a row to f(group).
  template <typename F>
  void spread(float* row, F f) const {
    auto of_group = channels / groups;
    for (int64_t i = 0; i < groups; ++i) {
      std::fill_n(row + first_channel(i), strided ? 1 : of_group, f(i));
    }
    for (int64_t i = groups; strided && i < channels; i += groups) {
      std::copy_n(row, groups, row + i);
    }
  }

  // Calls f(channel, group) for each channel.
  template <typename F>
  void for_each_channel(F f) const {
    auto of_group = channels / groups;
    for (int64_t i = 0; i < (strided ? of_group : groups); ++i) {
      for (int64_t j = 0; j < (strided ? groups : of_group); ++j) {
        strided ? f(i * groups + j, j) : f(i * of_group + j, i);
      }
    }
  }
};

// Of a sample: three rows a chunk, of the means' two parts and of the squared
// deviations from them, become each group's mean, rest and variance.
void merge_statistics(
    const GroupGeometry& of,
    const float* partials,
    float* mean,
    float* rest,
    float* variance);

// Two rows a chunk, of cotangents and of them times the normalized values,
// become the sums of each channel, and in `means`, if it is not null, the means
// of both in each group, weighted, of the groups one after another.
void merge_gradients(
    const GroupGeometry& of,
    const float* partials,
    const float* weight, // null: none
    float* bias_sums,
    float* weight_sums,
    float* means);

} // namespace mlx_norms::cpu
