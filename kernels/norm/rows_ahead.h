// Copyright (c) 2026 mlx_norms contributors
//
// The rows of an array that a persistent loop takes one after another. Those of
// one chunk are on their way before they are needed: the next one in registers,
// or, on CUDA, the next `stages` ones in stages of threadgroup memory, each of
// which is a thread's own. The row of the weight that they have in common comes
// first.

#pragma once

#include "kernels/common/parameters.h"
#include "kernels/norm/persistent_loop.h"

constant int stages [[function_constant(36)]]; // 0: in registers
constant bool weight_is_staged [[function_constant(37)]];

// What has been fetched ahead since the last call is one row of each array.
inline void group_fetches() {
#ifdef __CUDACC__
  if (stages > 0) {
    group_copies();
  }
#endif
}

// Until the row that was fetched first is there.
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
  constant const int* layout;
  int place; // among the arrays that are staged

  RowIn row;        // that is worked on
  float now[V * N]; // its values
  uint4 next[V];    // the vectors of the row after it
  uint stage;       // that it is in

  void begin(
      device const uchar* rows,
      int flags_of_rows,
      constant const int* layout_of_rows,
      int place_of_rows) {
    data = rows;
    flags = flags_of_rows;
    layout = layout_of_rows;
    place = place_of_rows;
  }

  // Vector k of this iteration's row begins to be fetched.
  void fetch_ahead(
      PersistentLoop loop,
      uint iteration,
      int k,
      thread const RowThreads& threads,
      int length) {
    RowIn from = row_in(data, flags, layout, loop.at(iteration), length);
    int i = element<N>(threads, 0, k);
#ifdef __CUDACC__
    if (stages > 0) {
      if (in_row(i, N, length)) {
        long at = long(i) * size_of(from.type);
        copy_to_stage(place_of(iteration % uint(stages), k), from.data + at);
      }
      return;
    }
#endif
    if (can_fetch<N>(from)) {
      next[k] = fetch<N>(from, i, length);
    }
  }

  void set_row(PersistentLoop loop, uint iteration, int length) {
    assign(row, row_in(data, flags, layout, loop.at(iteration), length));
    stage = stages > 0 ? iteration % uint(stages) : 0;
  }

  // The row that was fetched ahead is now worked on.
  void arrive(
      PersistentLoop loop,
      uint iteration,
      thread const RowThreads& threads,
      int length) {
    set_row(loop, iteration, length);
    if (stages == 0 && !looped) {
      for (int k = 0; k < V; ++k) {
        int i = element<N>(threads, 0, k);
        if (is_fetched<N>(row, i, length)) {
          unpack<N>(next[k], row.type, now + k * N);
        } else {
          read<N>(row, i, length, now + k * N);
        }
      }
    }
  }

  // Its vector k, from element i on.
  void vector(int k, int i, int length, thread float* v) const {
#ifdef __CUDACC__
    if (stages > 0) {
      unpack<N>(*staged_vector(place_of(stage, k)), row.type, v);
      return;
    }
#endif
    if (looped) {
      read<N>(row, i, length, v);
      return;
    }
    for (int j = 0; j < N; ++j) {
      v[j] = now[k * N + j];
    }
  }

#ifdef __CUDACC__
  int place_of(uint of_stage, int k) const {
    int rows_before = int(weight_is_staged) + place * stages + int(of_stage);
    return rows_before * V + k;
  }

  // No copy fills what lies past the row's end.
  void clear_stages(thread const RowThreads& threads, int length) const {
    for (int k = 0; k < V; ++k) {
      if (!in_row(element<N>(threads, 0, k), N, length)) {
        for (int i = 0; i < stages; ++i) {
          *staged_vector(place_of(i, k)) = uint4(0, 0, 0, 0);
        }
      }
    }
  }
#endif
};

// In registers or a stage where it is one chunk of whole vectors.
template <int N, int V>
struct HeldWeight {
  RowIn row;
  float offset;
  uint4 bits[V];

  bool is_held(int i, int length) const {
    return !looped && is_fetched<N>(row, i, length);
  }

  void hold(
      RowIn from,
      float weight_offset,
      thread const RowThreads& threads,
      int length) {
    assign(row, from);
    offset = weight_offset;
    for (int k = 0; k < V; ++k) {
      int i = element<N>(threads, 0, k);
      if (is_held(i, length)) {
#ifdef __CUDACC__
        if (weight_is_staged) { // await_fetches awaits it, too
          if (in_row(i, N, length)) {
            copy_to_stage(k, row.data + long(i) * size_of(row.type));
          } else {
            *staged_vector(k) = uint4(0, 0, 0, 0);
          }
          continue;
        }
#endif
        bits[k] = fetch<N>(row, i, length);
      }
    }
  }

  // Vector k, from element i on.
  void vector(int k, int i, int length, thread float* w) const {
    if (!is_held(i, length)) {
      read<N>(row, i, length, w);
    } else {
      uint4 held = bits[k];
#ifdef __CUDACC__
      if (weight_is_staged) {
        held = *staged_vector(k);
      }
#endif
      unpack<N>(held, row.type, w);
    }
    add_offset<N>(offset, w);
  }
};
