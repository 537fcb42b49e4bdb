// Copyright © 2026 mlx_norms contributors

#include "csrc/plan/geometry.h"

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
Geometry choose(int length, int item_size, int alone, int together) {
  int width = kVectorBytes / item_size;
  int row_vectors = ceil_div(length, width);
  if (int v = vectors_for(row_vectors, 1, alone / width)) {
    return {width, v, 1, false};
  }
  // Half of the largest threadgroup, so that two can share a core.
  for (int simds : {Geometry::kMaxSimds / 2, Geometry::kMaxSimds}) {
    if (int v = vectors_for(row_vectors, simds, together / width)) {
      return {width, v, ceil_div(row_vectors, v * Geometry::kSimdSize), false};
    }
  }
  return {width, together / width, Geometry::kMaxSimds, true};
}

} // namespace

Geometry norm_geometry(int length, int item_size) {
  return choose(length, item_size, 32, 16);
}

Geometry norm_vjp_geometry(int length, int item_size) {
  return choose(length, item_size, 8, 8);
}

} // namespace mlx_norms
