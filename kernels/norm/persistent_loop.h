// Copyright (c) 2026 mlx_norms contributors
//
// A persistent loop: the same threads compute `rows_per_loop` rows, `at_once`
// in each iteration, all of which use one row of the weight. Each loop, or each
// cluster of loops (kernels/common/cluster.h), stores a row of partial sums.

#pragma once

#include <metal_stdlib>

using namespace metal;

// Rows that use one row of the weight adjoin, else they are `heads` apart.
constant bool adjoining [[function_constant]];

struct PersistentLoop {
  uint row; // the first
  uint step;
  uint count;
  uint at_once;
  uint place; // of this thread's row among those at once

  uint iterations() const thread {
    return (count + at_once - 1) / at_once;
  }
  // Whether this thread has a row, too.
  bool has(uint iteration) const thread {
    return at_once == 1 || iteration * at_once + place < count;
  }
  uint at(uint iteration) const thread {
    return row + (iteration * at_once + place) * step;
  }
};

// Row i of x uses row i % heads of the weight or, if rows adjoin, row
// i / (rows / heads).
inline PersistentLoop make_loop(
    uint index,
    uint rows,
    uint heads,
    uint rows_per_loop,
    uint at_once,
    uint place) {
  uint of_head = rows / heads;
  uint first = index / heads * rows_per_loop;
  uint count = first < of_head ? min(rows_per_loop, of_head - first) : 0;
  uint head = index % heads;
  uint row = adjoining ? head * of_head + first : first * heads + head;
  return PersistentLoop{row, adjoining ? 1 : heads, count, at_once, place};
}
