// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/geometry.h"

#include <atomic>
#include <initializer_list>

#include "csrc/gpu/integers.h"

namespace mlx_norms {

namespace {

constexpr int kVectorBytes = 16;

// The fewest vectors per thread, a power of two, with which `simds` SIMD-groups
// hold the row; 0 if more than `most` are needed.
int vectors_for(int row_vectors, int simds, int most) {
  for (int v = 1; v <= most; v *= 2) {
    if (row_vectors <= simds * Geometry::kSimdSize * v) {
      return v;
    }
  }
  return 0;
}

// The elements of a row that a thread may hold if one SIMD-group has the row,
// and if several share it.
struct Budget {
  int alone;
  int together;
};

// Apple's GPUs: as few vectors per thread as possible, since the size of a
// core's register file is not known.
Geometry few_vectors(int length, int width, Budget budget) {
  int row_vectors = ceil_div(length, width);
  if (int v = vectors_for(row_vectors, 1, budget.alone / width)) {
    return {width, v, 1, false};
  }
  // Half of the largest threadgroup first: two of them can share a core.
  for (int simds : {Geometry::kMaxSimds / 2, Geometry::kMaxSimds}) {
    if (int v = vectors_for(row_vectors, simds, budget.together / width)) {
      return {width, v, ceil_div(row_vectors, v * Geometry::kSimdSize), false};
    }
  }
  return {width, budget.together / width, Geometry::kMaxSimds, true};
}

// The most vectors per thread, by bench/gpu_geometry.py on an H200
// (bench/results/h200_geometry.csv). With four, an RMSNorm of 4096 elements of
// 16 bits sums in the order of mx.fast, and is bit-identical to it.
int most_cuda_vectors(bool backward, int width, int row_vectors) {
  bool wide = width == 8; // of 16 bits
  if (backward) {
    return row_vectors <= 1024 ? 2 : wide || row_vectors <= 2048 ? 4 : 8;
  }
  return !wide && row_vectors > 1024 ? 8 : 4;
}

// Whether kernels are instantiated for this number of vectors.
bool is_built(bool backward, int width, int vectors) {
  return vectors == 1 || vectors == 2 || vectors == 4 ||
      (vectors == 3 && !backward) || (vectors == 8 && width == 4);
}

// NVIDIA's GPUs: as few SIMD-groups per row as registers allow, since sums
// across SIMD-groups cost more than a thread's own; and no vector of a
// SIMD-group past the row's end, if possible.
Geometry few_simds(bool backward, int length, int width, int forced) {
  int row_vectors = ceil_div(length, width);
  int in_simd = ceil_div(row_vectors, Geometry::kSimdSize);
  int most =
      forced > 0 ? forced : most_cuda_vectors(backward, width, row_vectors);
  for (int v = in_simd; v <= most; ++v) {
    if (is_built(backward, width, v)) {
      return {width, v, 1, false};
    }
  }
  int vectors = most;
  bool divides = row_vectors % Geometry::kSimdSize == 0;
  for (int v = most; divides && forced == 0 && v > 0; --v) {
    if (is_built(backward, width, v) && in_simd % v == 0 &&
        in_simd / v <= Geometry::kMaxSimds) {
      vectors = v;
      break;
    }
  }
  int simds = ceil_div(in_simd, vectors);
  bool looped = simds > Geometry::kMaxSimds;
  return {width, vectors, looped ? Geometry::kMaxSimds : simds, looped};
}

std::atomic<int> forced_vectors[2] = {0, 0}; // forward, backward

} // namespace

Geometry
geometry_for(bool backward, int length, int item_size, Backend backend) {
  int width = kVectorBytes / item_size;
  if (backend == Backend::Cuda) {
    return few_simds(backward, length, width, forced_vectors[backward]);
  }
  auto budget = backward ? Budget{8, 8} : Budget{32, 16};
  return few_vectors(length, width, budget);
}

void set_vectors(bool backward, int vectors) {
  forced_vectors[backward] = vectors;
}

} // namespace mlx_norms
