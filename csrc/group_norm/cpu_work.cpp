// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/cpu_work.h"

#include <algorithm>

#include "csrc/cpu/scratch.h"

namespace mlx_norms::cpu {

namespace {

// Rows of each channel of several samples or chunks, which begin as zeros: the
// padding takes part in the arithmetic, where NaN and subnormals are slow.
class ChannelRows {
 public:
  ChannelRows(const GroupGeometry& of, int64_t count, int rows)
      : size_(rows * of.pitch),
        rows_(of.pitch, count * rows) {
    std::fill_n(rows_.data(), count * size_, 0.0f);
  }
  float* at(int64_t i) const {
    return rows_.data() + i * size_;
  }

 private:
  int64_t size_;
  Scratch rows_;
};

} // namespace

void GroupWork::run(const GroupGeometry& of) const {
  auto rows = std::min(of.chunk_rows, of.positions);
  auto blocks = blocks_by_threads(of.samples * of.chunks, rows * of.channels);
  of.samples < blocks.count() ? run_chunks(of, blocks) : run_samples(of);
}

// Each thread has samples of its own, which may stay in its cache.
void GroupWork::run_samples(const GroupGeometry& of) const {
  blocks_by_threads(of.samples, of.positions * of.channels)
      .for_each([&](int, int64_t begin, int64_t end) {
        ChannelRows vectors(of, 1, vector_rows);
        ChannelRows partials(of, of.chunks, partial_rows);
        for (auto sample = begin; sample < end; ++sample) {
          prepare(sample, vectors.at(0));
          if (partial_rows) {
            for (int64_t i = 0; i < of.chunks; ++i) {
              auto row = of.first_row(sample, i);
              add_up(row, row + of.rows_of(i), vectors.at(0), partials.at(i));
            }
            merge(sample, partials.at(0), vectors.at(0));
          }
          for (int64_t i = 0; apply && i < of.chunks; ++i) {
            auto row = of.first_row(sample, i);
            apply(row, row + of.rows_of(i), vectors.at(0));
          }
        }
      });
}

void GroupWork::run_chunks(const GroupGeometry& of, const RowBlocks& blocks)
    const {
  ChannelRows vectors(of, of.samples, vector_rows);
  ChannelRows partials(of, of.samples * of.chunks, partial_rows);
  RowBlocks samples(of.samples, of.samples);
  samples.for_each([&](int, int64_t i, int64_t) { prepare(i, vectors.at(i)); });
  if (partial_rows) {
    blocks.for_each([&](int, int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) {
        auto sample = i / of.chunks, chunk = i % of.chunks;
        auto row = of.first_row(sample, chunk);
        add_up(
            row, row + of.rows_of(chunk), vectors.at(sample), partials.at(i));
      }
    });
    samples.for_each([&](int, int64_t i, int64_t) {
      merge(i, partials.at(i * of.chunks), vectors.at(i));
    });
  }
  if (apply) {
    blocks.for_each([&](int, int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) {
        auto sample = i / of.chunks, chunk = i % of.chunks;
        auto row = of.first_row(sample, chunk);
        apply(row, row + of.rows_of(chunk), vectors.at(sample));
      }
    });
  }
}

} // namespace mlx_norms::cpu
