// Copyright (c) 2026 mlx_norms contributors
//
// How the sums over rows are shared out: each team walks `rows_per_team` rows
// that have one row of the weight in common, and it, or a cluster of them
// (kernels/common/cluster.h), writes a row of partial sums.

#pragma once

#include <metal_stdlib>

using namespace metal;

struct Walk {
  uint row;
  uint step;
  uint count;

  uint at(uint turn) const {
    return row + turn * step;
  }
};

// A weight of several heads has its row i % heads for row i of x.
inline Walk make_walk(uint team, uint rows, uint heads, uint rows_per_team) {
  uint of_head = rows / heads;
  uint first = team / heads * rows_per_team;
  uint count = first < of_head ? min(rows_per_team, of_head - first) : 0;
  return Walk{first * heads + team % heads, heads, count};
}
