// Copyright (c) 2026 mlx_norms contributors
//
// The rows of an array that a persistent loop reads one after another. Rows of
// one chunk are fetched before they are needed: the next row to registers or,
// on CUDA, the next `stages` rows to stages of threadgroup memory, where each
// thread reads only what it copied itself. The weights' rows, which all rows
// share, are staged first.

#pragma once

#include "kernels/common/parameters.h"
#include "kernels/norm/persistent_loop.h"

constant int stages [[function_constant]]; // 0: rows are in registers
constant int staged_weights [[function_constant]];
// What registers suffice for besides the row itself.
constant bool fetch_next [[function_constant]];
constant bool hold_weight [[function_constant]];

// Groups the fetches since the last call: one row of each array.
inline void group_fetches() {
#ifdef __CUDACC__
  if (stages > 0) {
    group_copies();
  }
#endif
}

// Waits for the row that was fetched first.
inline void await_fetches() {
#ifdef __CUDACC__
  if (stages > 0) {
    await_copies<(stages > 1 ? stages - 1 : 0)>();
  }
#endif
}

template <int N, int V>
struct RowsAhead {
  device const uchar* data;
  int flags;
  constant const int* layouts;
  int place; // index among the staged arrays

  RowIn row;        // the current row
  float now[V * N]; // its values
  uint4 next[V];    // the vectors of the next row
  uint stage;       // the stage that the row is in

  void begin(
      device const uchar* rows,
      int flags_of_rows,
      constant const int* all_layouts,
      int place_of_rows) thread {
    data = rows;
    flags = flags_of_rows;
    layouts = all_layouts;
    place = place_of_rows;
  }

  // Starts to fetch vector k of this iteration's row.
  void fetch_ahead(
      PersistentLoop loop,
      uint iteration,
      int k,
      thread const RowThreads& threads,
      int length) thread {
    if (!loop.has(iteration)) {
      return;
    }
    RowIn from = row_in(data, flags, layouts, loop.at(iteration), length);
    Span<N> of = span_of<N>(threads, 0, k, length);
#ifdef __CUDACC__
    if (stages > 0) {
      if (of.is_full()) {
        long at = long(of.begin) * size_of(from.type);
        copy_to_stage(place_of(iteration % uint(stages), k), from.data + at);
      }
      return;
    }
#endif
    if (fetch_next && can_fetch<N>(from, of)) {
      next[k] = fetch<N>(from, of);
    }
  }

  void set_row(PersistentLoop loop, uint iteration, int length) thread {
    assign(row, row_in(data, flags, layouts, loop.at(iteration), length));
    stage = stages > 0 ? iteration % uint(stages) : 0;
  }

  // Makes the row that was fetched ahead the current one.
  void arrive(
      PersistentLoop loop,
      uint iteration,
      thread const RowThreads& threads,
      int length) thread {
    set_row(loop, iteration, length);
    if (stages == 0 && !looped) {
      for (int k = 0; k < V; ++k) {
        Span<N> of = span_of<N>(threads, 0, k, length);
        if (!loop.has(iteration)) {
          clear<N>(now + k * N);
        } else if (fetch_next && can_fetch<N>(row, of)) {
          unpack<N>(next[k], row.type, now + k * N);
        } else {
          read<N>(row, of, now + k * N);
        }
      }
    }
  }

  // Vector k of the current row, which is `of`.
  void vector(int k, Span<N> of, thread float* v) const thread {
#ifdef __CUDACC__
    if (stages > 0) {
      unpack<N>(*staged_vector(place_of(stage, k)), row.type, v);
      return;
    }
#endif
    if (looped) {
      read<N>(row, of, v);
      return;
    }
    for (int j = 0; j < N; ++j) {
      v[j] = now[k * N + j];
    }
  }

#ifdef __CUDACC__
  int place_of(uint of_stage, int k) const thread {
    int rows_before = staged_weights + place * stages + int(of_stage);
    return rows_before * V + k;
  }

  // Zeros what no copy fills: what lies past the row's end, and missing rows.
  void clear_stages(
      PersistentLoop loop,
      thread const RowThreads& threads,
      int length) const thread {
    for (int k = 0; k < V; ++k) {
      bool full = span_of<N>(threads, 0, k, length).is_full();
      for (int i = 0; i < stages; ++i) {
        if (!full || !loop.has(i)) {
          *staged_vector(place_of(i, k)) = uint4(0, 0, 0, 0);
        }
      }
    }
  }
#endif
};

// A weight's row, held in registers or a stage if it is one chunk of whole
// vectors.
template <int N, int V>
struct HeldWeight {
  RowIn row;
  float offset;
  int place; // index among the weights
  uint4 bits[V];

  bool is_staged() const thread {
    return place < staged_weights;
  }

  bool is_held(Span<N> of) const thread {
    return !looped && hold_weight && can_fetch<N>(row, of);
  }

  void hold(
      RowIn from,
      float weight_offset,
      int place_of_row,
      thread const RowThreads& threads,
      int length) thread {
    assign(row, from);
    offset = weight_offset;
    place = place_of_row;
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      if (is_held(of)) {
#ifdef __CUDACC__
        if (is_staged()) { // await_fetches waits for it, too
          long at = long(of.begin) * size_of(row.type);
          copy_to_stage(place * V + k, row.data + at);
          continue;
        }
#endif
        bits[k] = fetch<N>(row, of);
      }
    }
  }

  // Vector k, which is `of`.
  void vector(int k, Span<N> of, thread float* w) const thread {
    if (!is_held(of)) {
      read<N>(row, of, w);
    } else {
      uint4 held = bits[k];
#ifdef __CUDACC__
      if (is_staged()) {
        held = *staged_vector(place * V + k);
      }
#endif
      unpack<N>(held, row.type, w);
    }
    add_offset<N>(offset, w);
  }

  // Multiplies vector k of a cotangent by it; what is 0 past the row's end
  // stays 0.
  void weigh(int k, Span<N> of, thread float* g) const thread {
    float w[N];
    vector(k, of, w);
    for (int j = 0; j < N; ++j) {
      g[j] *= w[j];
    }
  }
};
