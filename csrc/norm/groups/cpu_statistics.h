// Copyright © 2026 mlx_norms contributors
//
// How the partial sums of the chunks of a sample become a group's, in double
// and in one order. What is of each channel is a row of `pitch` elements.

#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/cpu/rows.h"

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
  // Whether statistics of each channel would take longer than those of groups,
  // which are then taken along the channels.
  bool along_channels() const {
    constexpr int64_t kPositions = 8;
    return positions < kPositions;
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
  // Where a row of vectors has a group's first value: along the channels they
  // are of each group, and spread for some channels at a time.
  int64_t place(int64_t group) const {
    return along_channels() ? group : first_channel(group);
  }
  // Sets a row of vectors to f(group).
  template <typename F>
  void set(float* row, F f) const {
    bool once = strided || along_channels();
    for (int64_t i = 0; i < groups; ++i) {
      std::fill_n(row + place(i), once ? 1 : channels / groups, f(i));
    }
    if (strided && !along_channels()) {
      repeat(row, groups, channels);
    }
  }
  // Copies values of each group to the n channels from `first`.
  void spread(const float* row, int64_t first, int64_t n, float* to) const {
    if (strided) {
      auto group = first % groups, once = std::min(groups, n);
      auto last = std::min(groups - group, once);
      std::copy_n(row + group, last, to);
      std::copy_n(row, once - last, to + last);
      return repeat(to, once, n);
    }
    for_each_run(first, n, [&](int64_t group, int64_t i, int64_t count) {
      std::fill_n(to + i, count, row[group]);
    });
  }
  // Calls f(group, i, count) for the channels of each group that adjoin among
  // the n from `first`, of which they begin at the i-th one.
  template <typename F>
  void for_each_run(int64_t first, int64_t n, F f) const {
    auto of_group = channels / groups;
    for (auto c = first, end = first + n; c < end;) {
      auto group = c / of_group;
      auto next = std::min((group + 1) * of_group, end);
      f(group, c - first, next - c);
      c = next;
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

 private:
  // Repeats the first values of a row.
  static void repeat(float* row, int64_t values, int64_t n) {
    while (values < n) {
      auto more = std::min(values, n - values);
      std::copy_n(row, more, row + values);
      values += more;
    }
  }
};

// Along the channels: adds rows of a sample, after so many others, to two sums
// of each group, its mean and the squared deviations from it.
void add_along_channels(
    const GroupGeometry& of,
    const RowsIn& x,
    int64_t rows,
    int64_t before,
    double* groups);

// These become each group's mean, rest and variance.
void finish_along_channels(
    const GroupGeometry& of,
    const double* groups,
    float* mean,
    float* rest,
    float* variance);

// Adds the n channels of a row from `first`, weighted, to a sum of each group.
void add_weighted(
    const GroupGeometry& of,
    const float* row,
    const float* weight,
    int64_t first,
    int64_t n,
    double* groups);

// Merges a sample's three rows a chunk, of the means' two parts and of the
// squared deviations from them, into each group's mean, rest and variance.
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
    const float* weight,
    float* bias_sums, // null: neither these nor those of weights are wanted
    float* weight_sums,
    float* means);

} // namespace mlx_norms::cpu
