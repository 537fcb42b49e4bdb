// Copyright © 2026 mlx_norms contributors

#include "csrc/plan/geometry.h"

#include <atomic>
#include <initializer_list>

#include "csrc/plan/ceil_div.h"

namespace mlx_norms {

namespace {

constexpr int kVectorBytes = 16;

// The fewest vectors a thread, a power of two, with which `simds` SIMD-groups
// hold the row; 0 if that takes more than `most`.
int vectors_for(int row_vectors, int simds, int most) {
  for (int v = 1; v <= most; v *= 2) {
    if (row_vectors <= simds * Geometry::kSimdSize * v) {
      return v;
    }
  }
  return 0;
}

// Elements a thread may hold of a row that is one SIMD-group's, and of others.
struct Budget {
  int alone;
  int together;
};

// Apple's GPUs: as few vectors a thread as the row allows, since what a core
// holds in registers is unknown to us.
Geometry few_vectors(int length, int width, Budget budget) {
  int row_vectors = ceil_div(length, width);
  if (int v = vectors_for(row_vectors, 1, budget.alone / width)) {
    return {width, v, 1, false};
  }
  // Half of the largest threadgroup, so that two can share a core.
  for (int simds : {Geometry::kMaxSimds / 2, Geometry::kMaxSimds}) {
    if (int v = vectors_for(row_vectors, simds, budget.together / width)) {
      return {width, v, ceil_div(row_vectors, v * Geometry::kSimdSize), false};
    }
  }
  return {width, budget.together / width, Geometry::kMaxSimds, true};
}

// NVIDIA's: as few SIMD-groups a row as registers allow, since what they do for
// each other costs more than what a thread does alone.
Geometry few_simds(int length, int width, int vectors) {
  int row_vectors = ceil_div(length, width);
  if (int v = vectors_for(row_vectors, 1, vectors)) {
    return {width, v, 1, false};
  }
  int simds = ceil_div(row_vectors, vectors * Geometry::kSimdSize);
  bool looped = simds > Geometry::kMaxSimds;
  return {width, vectors, looped ? Geometry::kMaxSimds : simds, looped};
}

// The most vectors a thread, by bench/gpu_geometry.py on an H200
// (bench/results/h200_geometry.csv).
int most_cuda_vectors(RowKernel kernel, int width, int row_vectors) {
  bool wide = width == 8; // of 16 bits
  if (!kernel.backward) {
    if (wide) {
      // Few rows are faster with more threads, and many not slower.
      return !kernel.centre && row_vectors <= 512 ? 2 : 4;
    }
    return row_vectors > 1024 ? 8 : 4;
  }
  if (wide) {
    return kernel.centre && row_vectors >= 2048 ? 1 : 2;
  }
  return row_vectors <= 512 ? 2 : row_vectors <= 2048 ? 4 : 1;
}

// As many as leave no vector of a SIMD-group past the row's end, if any do.
int cuda_vectors(RowKernel kernel, int width, int row_vectors) {
  int most = most_cuda_vectors(kernel, width, row_vectors);
  if (row_vectors % Geometry::kSimdSize != 0) {
    return most;
  }
  int vectors = most;
  while (row_vectors % (vectors * Geometry::kSimdSize) != 0) {
    vectors /= 2;
  }
  return vectors;
}

std::atomic<int> forced_vectors[2] = {0, 0}; // forward, backward

} // namespace

Geometry
geometry_for(RowKernel kernel, int length, int item_size, Backend backend) {
  int width = kVectorBytes / item_size;
  if (backend == Backend::Cuda) {
    int forced = forced_vectors[kernel.backward];
    int found = cuda_vectors(kernel, width, ceil_div(length, width));
    return few_simds(length, width, forced > 0 ? forced : found);
  }
  auto budget = kernel.backward ? Budget{8, 8} : Budget{32, 16};
  return few_vectors(length, width, budget);
}

void set_vectors(bool backward, int vectors) {
  forced_vectors[backward] = vectors;
}

} // namespace mlx_norms
