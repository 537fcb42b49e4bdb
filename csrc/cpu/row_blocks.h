// Copyright © 2026 mlx_norms contributors
//
// How the rows of a norm are cut into blocks that threads take in turn.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "csrc/cpu/threads.h"

namespace mlx_norms::cpu {

// Of fewer elements a second thread costs more than it saves: its start takes
// some 10 microseconds.
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

  // Calls f(block, first_row, end_row) for each, from several threads.
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

// Some for each thread, so that one that is held up keeps nobody waiting.
inline RowBlocks blocks_by_threads(int64_t rows, int64_t width) {
  constexpr int kBlocksOfThread = 4;
  auto most = std::min(rows, blocks_worth(rows * width));
  int64_t wanted = thread_count() == 1 ? 1 : kBlocksOfThread * thread_count();
  return {rows, static_cast<int>(std::min(most, wanted))};
}

// The same ones whatever the number of threads: sums over rows are taken block
// by block. A block has many times the rows of the weight.
inline RowBlocks
blocks_of_sums(int64_t rows, int64_t width, int64_t weight_rows) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kMost = 32;
  auto most =
      std::min(rows / (kRows * weight_rows), blocks_worth(rows * width));
  return {rows, static_cast<int>(std::min(most, kMost))};
}

} // namespace mlx_norms::cpu
