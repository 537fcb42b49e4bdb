// Copyright © 2026 mlx_norms contributors
//
// How a norm's rows are divided into blocks, which threads compute in turn.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "csrc/cpu/threads.h"

namespace mlx_norms::cpu {

// With fewer elements, a second thread costs more than it saves: starting it
// takes about 10 microseconds.
constexpr int64_t kElementsToShare = 512 * 1024;

// How many blocks so many elements are worth.
inline int64_t blocks_worth(int64_t elements) {
  constexpr int64_t kElementsOfBlock = 64 * 1024;
  return elements < kElementsToShare ? 1 : elements / kElementsOfBlock;
}

class RowBlocks {
 public:
  RowBlocks(int64_t rows, int count)
      : rows_(rows),
        count_(std::max(count, 1)) {}

  int count() const {
    return count_;
  }

  // The first row of a block, and the one past its last.
  std::pair<int64_t, int64_t> rows(int64_t block) const {
    return {rows_ * block / count_, rows_ * (block + 1) / count_};
  }

  // Calls f(block, first_row, end_row) for each block, from several threads.
  template <typename F>
  void for_each(F f) const {
    parallel_for(count_, [&](int block) {
      auto [begin, end] = rows(block);
      f(block, begin, end);
    });
  }

 private:
  int64_t rows_;
  int count_;
};

// Several blocks per thread, so that a delayed thread does not hold up the
// rest.
inline RowBlocks blocks_by_threads(int64_t rows, int64_t width) {
  constexpr int kBlocksOfThread = 4;
  auto max = std::min(rows, blocks_worth(rows * width));
  int64_t wanted = thread_count() == 1 ? 1 : kBlocksOfThread * thread_count();
  return {rows, static_cast<int>(std::min(max, wanted))};
}

// The same blocks for any number of threads, since sums over rows are taken
// block by block. A block has many times as many rows as the weight.
inline RowBlocks
blocks_of_sums(int64_t rows, int64_t width, int64_t weight_rows) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kMax = 32;
  auto max = std::min(rows / (kRows * weight_rows), blocks_worth(rows * width));
  return {rows, static_cast<int>(std::min(max, kMax))};
}

} // namespace mlx_norms::cpu
