// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/cpu_work.h"

#include <algorithm>

#include "csrc/cpu/scratch.h"

namespace mlx_norms::cpu {

namespace {

// Elements that stay in a core's cache from one pass to the next.
constexpr int64_t kCached = 256 * 1024;

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

} // namespace

void GroupWork::run() const {
  auto of_sample = of.positions * of.channels;
  auto of_chunk = std::min(of.chunk_rows, of.positions) * of.channels;
  auto tasks = blocks_by_threads(of.samples * of.chunks, of_chunk).count();
  if (tasks == 1 || (of.samples >= tasks && of_sample <= kCached)) {
    return run_samples();
  }
  auto at_once = std::max<int64_t>(thread_count() * kCached / of_sample, 1);
  for (int64_t first = 0; first < of.samples; first += at_once) {
    share_samples(first, std::min(at_once, of.samples - first));
  }
}

// Each thread has samples of its own. The last chunk is the first to be read
// again, as in share_samples: it is still in the cache.
void GroupWork::run_samples() const {
  blocks_by_threads(of.samples, of.positions * of.channels)
      .for_each([&](int, int64_t begin, int64_t end) {
        ChannelRows vectors(of, 1, vector_rows_);
        ChannelRows partials(of, of.chunks, partial_rows_);
        for (auto sample = begin; sample < end; ++sample) {
          prepare(sample, vectors.at(0));
          if (partial_rows_) {
            for (int64_t i = 0; i < of.chunks; ++i) {
              auto row = of.first_row(sample, i);
              add_up(row, row + of.rows_of(i), vectors.at(0), partials.at(i));
            }
            merge(sample, partials.at(0), vectors.at(0));
          }
          for (auto i = applies_ ? of.chunks : 0; i-- > 0;) {
            auto row = of.first_row(sample, i);
            apply(row, row + of.rows_of(i), vectors.at(0));
          }
        }
      });
}

// The threads share the chunks of some samples. There are few tasks, so that a
// thread likely has the same ones in both passes.
void GroupWork::share_samples(int64_t first, int64_t n) const {
  constexpr int kTasksOfThread = 2;
  ChannelRows vectors(of, n, vector_rows_);
  ChannelRows partials(of, n * of.chunks, partial_rows_);
  RowBlocks samples(n, n);
  RowBlocks chunks(
      n * of.chunks,
      std::min<int64_t>(n * of.chunks, kTasksOfThread * thread_count()));
  samples.for_each(
      [&](int, int64_t i, int64_t) { prepare(first + i, vectors.at(i)); });
  if (partial_rows_) {
    chunks.for_each([&](int, int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) {
        auto sample = i / of.chunks, chunk = i % of.chunks;
        auto row = of.first_row(first + sample, chunk);
        add_up(
            row, row + of.rows_of(chunk), vectors.at(sample), partials.at(i));
      }
    });
    samples.for_each([&](int, int64_t i, int64_t) {
      merge(first + i, partials.at(i * of.chunks), vectors.at(i));
    });
  }
  if (applies_) {
    chunks.for_each([&](int, int64_t begin, int64_t end) {
      for (auto i = end; i-- > begin;) {
        auto sample = i / of.chunks, chunk = i % of.chunks;
        auto row = of.first_row(first + sample, chunk);
        apply(row, row + of.rows_of(chunk), vectors.at(sample));
      }
    });
  }
}

} // namespace mlx_norms::cpu
