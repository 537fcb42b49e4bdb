// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/cpu/simd.h"

namespace {

// Every instruction set sums in the same 32 lanes and the same order, so that a
// row has the same bits on each of them.
constexpr int kLanes = 32;
constexpr int kBlock = 8 * kLanes;
constexpr int kMaxLevels = 32;

template <int K>
struct Lanes {
  Floats v[K][kLanes / kWidth];

  void operator+=(const Lanes& other) {
    for (int k = 0; k < K; ++k) {
      for (int j = 0; j < kLanes / kWidth; ++j) {
        v[k][j] += other.v[k][j];
      }
    }
  }
};

template <int K>
struct Sums {
  float v[K];
};

// K sums over a row; term(i, part) gives the K vectors at element i, zero past
// the row's end. Blocks are merged pairwise, so the error grows with the log of
// the row's length: long constant rows stay exact to a few ulp.
template <int K, typename Term>
inline Sums<K> pairwise_sums(int64_t width, Term term) {
  Lanes<K> levels[kMaxLevels];
  uint64_t blocks = 0;
  for (int64_t begin = 0; begin < width; begin += kBlock) {
    int64_t end = width - begin < kBlock ? width : begin + kBlock;
    Lanes<K> sum = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int j = 0; j < kLanes / kWidth; ++j) {
        auto t = term(i + j * kWidth, Whole{});
        for (int k = 0; k < K; ++k) {
          sum.v[k][j] += t.v[k];
        }
      }
    }
    for (int j = 0; i < end; i += kWidth, ++j) {
      auto t = end - i >= kWidth ? term(i, Whole{}) : term(i, Part{end - i});
      for (int k = 0; k < K; ++k) {
        sum.v[k][j] += t.v[k];
      }
    }
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
  Sums<K> sums;
  for (int k = 0; k < K; ++k) {
    float lanes[kLanes];
    std::memcpy(lanes, total.v[k], sizeof(lanes));
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) {
        lanes[j] += lanes[j + half];
      }
    }
    sums.v[k] = lanes[0];
  }
  return sums;
}

// One term of K sums.
template <int K>
struct Term {
  Floats v[K];
};

} // namespace
