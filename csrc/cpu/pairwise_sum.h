// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/cpu/rows.h"
#include "csrc/cpu/simd.h"

namespace {

// Every instruction set sums in the same lanes and the same order, so sums are
// bit-identical. Rows are padded to a multiple of kLanes.
constexpr int kLanes = mlx_norms::cpu::kRowMultiple;
constexpr int kVectors = kLanes / kWidth;
constexpr int kBlock = 8 * kLanes;
constexpr int kMaxLevels = 32;

// Prefetches kLanes elements, each of their cache lines once.
template <int kWrite = 0, typename T>
inline void prefetch_lanes(const T* p) {
  constexpr int kLine = 64 / sizeof(T);
  for (int i = 0; i < kLanes; i += kLine) {
    __builtin_prefetch(p + i, kWrite);
  }
}

template <int K>
struct Lanes {
  Floats v[K][kVectors];

  void operator+=(const Lanes& other) {
    for (int k = 0; k < K; ++k) {
      for (int j = 0; j < kVectors; ++j) {
        v[k][j] += other.v[k][j];
      }
    }
  }
};

template <int K>
struct Sums {
  float v[K];
};

// Adds by halves. The vectors are used one by one: a copy of the array would go
// through memory.
inline float sum_lanes(const Floats (&v)[kVectors]) {
  if constexpr (kVectors == 8) {
    return sum_vector(
        ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])));
  } else if constexpr (kVectors == 4) {
    return sum_vector((v[0] + v[2]) + (v[1] + v[3]));
  } else {
    return sum_vector(v[0] + v[1]);
  }
}

// One term of K sums.
template <int K>
struct Term {
  Floats v[K];
};

// Sums the terms from begin to end, lane by lane.
template <int K, typename F>
inline Lanes<K> sum_block(int64_t begin, int64_t end, F term) {
  Lanes<K> sum = {};
  for (int64_t i = begin; i < end; i += kLanes) {
    for (int j = 0; j < kVectors; ++j) {
      auto t = term(i + j * kWidth);
      for (int k = 0; k < K; ++k) {
        sum.v[k][j] += t.v[k];
      }
    }
  }
  return sum;
}

// Blocks are merged pairwise, so the error grows with the logarithm of the
// row's length.
template <int K, typename F>
inline Lanes<K> sum_blocks(int64_t padded_width, F term) {
  Lanes<K> levels[kMaxLevels];
  uint64_t blocks = 0;
  for (int64_t begin = 0; begin < padded_width; begin += kBlock) {
    int64_t left = padded_width - begin;
    auto sum =
        sum_block<K>(begin, begin + (left < kBlock ? left : kBlock), term);
    // A binary counter: level n holds the sum of 2^n blocks.
    int level = 0;
    for (; blocks >> level & 1; ++level) {
      sum += levels[level];
    }
    levels[level] = sum;
    ++blocks;
  }
  Lanes<K> total = {};
  for (int level = 0; blocks >> level; ++level) {
    if (blocks >> level & 1) {
      total += levels[level];
    }
  }
  return total;
}

// K sums over a row: term(i) gives K vectors at element i, zero past the row's
// end.
template <int K, typename F>
inline Sums<K> pairwise_sums(int64_t padded_width, F term) {
  auto lanes = padded_width <= kBlock ? sum_block<K>(0, padded_width, term)
                                      : sum_blocks<K>(padded_width, term);
  Sums<K> sums;
  for (int k = 0; k < K; ++k) {
    sums.v[k] = sum_lanes(lanes.v[k]);
  }
  return sums;
}

} // namespace
