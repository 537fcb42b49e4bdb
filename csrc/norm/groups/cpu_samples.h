// Copyright © 2026 mlx_norms contributors
//
// How threads share the samples of a group norm, or the chunks of few samples.

#pragma once

#include <algorithm>

#include "csrc/cpu/row_blocks.h"
#include "csrc/cpu/scratch.h"
#include "csrc/norm/groups/cpu_statistics.h"

namespace mlx_norms::cpu {

// Rows of each channel of several samples or chunks, whose padding is zeros: it
// takes part in the arithmetic, where NaN and subnormals are slow.
class ChannelRows {
 public:
  ChannelRows(const GroupGeometry& of, int64_t count, int rows)
      : size_(rows * of.pitch),
        rows_(of.pitch, count * rows) {
    for (int64_t row = 0; row < count * rows; ++row) {
      auto* end = rows_.data() + (row + 1) * of.pitch;
      std::fill(end - (of.pitch - of.channels), end, 0.0f);
    }
  }
  float* at(int64_t i) const {
    return rows_.data() + i * size_;
  }

 private:
  int64_t size_;
  Scratch rows_;
};

// Some samples, whose chunks are shared out among so many tasks. There are few,
// so that a thread likely has the same chunks each time.
struct Samples {
  const GroupGeometry& of;
  int64_t first;
  int64_t count;
  int tasks;

  // Calls f(i) for each, counted from the first.
  template <typename F>
  void for_each(F f) const {
    blocks(count).for_each([&](int, int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) {
        f(i);
      }
    });
  }

  // Calls f(i, chunk, begin, end) for the rows of each chunk of sample i;
  // chunks are counted over all of these samples, and rows over all of x.
  template <typename F>
  void for_chunks(F f) const {
    blocks(count * of.chunks).for_each([&](int, int64_t begin, int64_t end) {
      for (auto chunk = begin; chunk < end; ++chunk) {
        call(chunk, f);
      }
    });
  }

  // Starts with the chunks that were read last and are still in the cache.
  template <typename F>
  void for_chunks_again(F f) const {
    blocks(count * of.chunks).for_each([&](int, int64_t begin, int64_t end) {
      for (auto chunk = end; chunk-- > begin;) {
        call(chunk, f);
      }
    });
  }

 private:
  RowBlocks blocks(int64_t n) const {
    return {n, static_cast<int>(std::min<int64_t>(n, tasks))};
  }
  template <typename F>
  void call(int64_t chunk, F f) const {
    auto i = chunk / of.chunks, of_sample = chunk % of.chunks;
    auto row = of.first_row(first + i, of_sample);
    f(i, chunk, row, row + of.rows_of(of_sample));
  }
};

// Calls f(samples) for one sample at a time, of which each thread has its own,
// or for those that the threads share.
template <typename F>
void for_samples(const GroupGeometry& of, F f) {
  // Elements that stay in a core's cache from one pass to the next.
  constexpr int64_t kCached = 256 * 1024;
  constexpr int kTasksOfThread = 2;
  auto of_sample = of.positions * of.channels;
  auto of_chunk = std::min(of.chunk_rows, of.positions) * of.channels;
  auto tasks = blocks_by_threads(of.samples * of.chunks, of_chunk).count();
  if (tasks == 1 || (of.samples >= tasks && of_sample <= kCached)) {
    return blocks_by_threads(of.samples, of_sample)
        .for_each([&](int, int64_t begin, int64_t end) {
          for (auto sample = begin; sample < end; ++sample) {
            f(Samples{of, sample, 1, 1});
          }
        });
  }
  auto at_once = std::max<int64_t>(thread_count() * kCached / of_sample, 1);
  for (int64_t first = 0; first < of.samples; first += at_once) {
    auto count = std::min(at_once, of.samples - first);
    f(Samples{of, first, count, kTasksOfThread * thread_count()});
  }
}

} // namespace mlx_norms::cpu
