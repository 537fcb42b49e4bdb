// Copyright (c) 2026 mlx_norms contributors
//
// y * (1 + scale) + shift: what an adaptive norm does to its result. Rounding
// early, each step rounds where one of MLX's ops would.

#pragma once

#include "kernels/norm/fetched_row.h"

constant bool has_scale [[function_constant]];
constant bool has_shift [[function_constant]];
constant int scale_flags [[function_constant]];
constant int shift_flags [[function_constant]];
// Whether the product has the norm's dtype: else it is float32.
constant bool round_product [[function_constant]];

template <int N, int V>
struct Modulation {
  FetchedRow<N, V> scale, shift;

#ifdef __CUDACC__
  // Whether all values have the output's 16 bits, to which each step rounds:
  // then two are added or multiplied by one instruction, and none is unpacked.
  bool is_packed(bool rounds, RowOut y, Span<N> of) const thread {
    return rounds && y.type != kFloat32 && can_store<N>(y, of) &&
        (!has_scale ||
         (scale.row.type == y.type && round_product &&
          can_fetch<N>(scale.row, of))) &&
        (!has_shift ||
         (shift.row.type == y.type && can_fetch<N>(shift.row, of)));
  }

  uint4 packed(int k, Span<N> of, int type, thread const float* y)
      const thread {
    uint4 bits = pack(y, type);
    if (has_scale) {
      uint4 s = add_packed(packed_ones(type), scale.packed(k, of), type);
      bits = multiply_packed(bits, s, type);
    }
    return has_shift ? add_packed(bits, shift.packed(k, of), type) : bits;
  }
#endif

  // Vector k of y, which is `of`, of this type if each step rounds.
  void apply(int k, Span<N> of, bool rounds, int y_type, thread float* y)
      const thread {
    if (rounds) {
      round_vector<N>(y_type, y);
    }
    if (has_scale) {
      float s[N];
      scale.values(k, of, s);
      for (int j = 0; j < N; ++j) {
        s[j] = 1.0f + s[j];
      }
      if (rounds) {
        round_vector<N>(float_type(scale_flags), s);
      }
      for (int j = 0; j < N; ++j) {
        y[j] = y[j] * s[j];
      }
      if (round_product) {
        round_vector<N>(y_type, y);
      }
    }
    if (has_shift) {
      float t[N];
      shift.values(k, of, t);
      for (int j = 0; j < N; ++j) {
        y[j] = y[j] + t[j];
      }
    }
  }
};
