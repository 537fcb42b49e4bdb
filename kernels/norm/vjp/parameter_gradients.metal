// Copyright (c) 2026 mlx_norms contributors
//
// The gradients of weight and bias. parameter_gradients takes partial sums over
// rows that are too long for norm_vjp's registers, one thread per vector of
// columns. sum_partials adds up all partial sums, in a fixed order.

#include "kernels/common/compensated_sum.h"
#include "kernels/common/rows.h"
#include "kernels/norm/gate.h"
#include "kernels/norm/persistent_loop.h"

constant bool sums_weight [[function_constant]];
constant bool sums_bias [[function_constant]];
constant int columns_s_flags [[function_constant]];
constant int columns_cotangent_flags [[function_constant]];
constant int columns_gate_flags [[function_constant]];
constant int weight_gradient_type [[function_constant]];
constant int bias_gradient_type [[function_constant]];

template <int N>
[[kernel, max_total_threads_per_threadgroup(256)]] void parameter_gradients(
    device const uchar* s [[buffer]],
    device const uchar* cotangent [[buffer]],
    device const float* kept_statistics
    [[buffer, function_constant(sums_weight)]],
    device float* weight_partials [[buffer, function_constant(sums_weight)]],
    device float* bias_partials [[buffer, function_constant(sums_bias)]],
    constant const int* layouts [[buffer]],
    constant const int& rows [[buffer]],
    constant const int& length [[buffer]],
    constant const int& heads [[buffer]],
    constant const int& rows_per_loop [[buffer]],
    device const uchar* gate [[buffer, function_constant(has_gate)]],
    uint2 at [[thread_position_in_grid]]) {
  int i = int(at.x) * N;
  if (i >= length) {
    return;
  }
  float dw[N], dw_error[N], db[N], db_error[N];
  for (int j = 0; j < N; ++j) {
    dw[j] = dw_error[j] = db[j] = db_error[j] = 0.0f;
  }
  PersistentLoop loop = make_loop(at.y, rows, heads, rows_per_loop, 1, 0);
  for (uint iteration = 0; iteration < loop.count; ++iteration) {
    uint row = loop.at(iteration);
    float g[N];
    RowIn g_row =
        row_in(cotangent, columns_cotangent_flags, layouts, row, length);
    read<N>(g_row, i, length, g);
    if (sums_weight) {
      float v[N];
      read<N>(row_in(s, columns_s_flags, layouts, row, length), i, length, v);
      if (has_gate) {
        float a[N];
        RowIn gate_row = row_in(gate, columns_gate_flags, layouts, row, length);
        read<N>(gate_row, i, length, a);
        activate<N>(false, kFloat32, a);
        for (int j = 0; j < N; ++j) {
          v[j] = gate_first ? v[j] * a[j] : v[j];
          g[j] = gate_first ? g[j] : g[j] * a[j];
        }
      }
      device const float* kept = kept_statistics + 3 * long(row);
      for (int j = 0; j < N; ++j) {
        float n = (v[j] - kept[0] - kept[1]) * kept[2];
        add_compensated(dw[j], dw_error[j], g[j] * n);
      }
    }
    if (sums_bias) {
      for (int j = 0; j < N; ++j) {
        add_compensated(db[j], db_error[j], g[j]);
      }
    }
  }
  for (int j = 0; j < N; ++j) {
    if (i + j < length) {
      long to = long(at.y) * length + i + j;
      if (sums_weight) {
        weight_partials[to] = dw[j];
      }
      if (sums_bias) {
        bias_partials[to] = db[j];
      }
    }
  }
}

#define INSTANTIATE_PARAMETER_GRADIENTS(N)                     \
  template [[host_name("parameter_gradients_" #N)]] [[kernel]] \
  decltype(parameter_gradients<N>) parameter_gradients<N>;

INSTANTIATE_PARAMETER_GRADIENTS(4)
INSTANTIATE_PARAMETER_GRADIENTS(8)

// A threadgroup adds up 32 columns of the weight's or the bias's partial sums:
// each of its SIMD-groups as many rows, then the first one their totals.
[[kernel, max_total_threads_per_threadgroup(1024)]] void sum_partials(
    device const float* weight_partials
    [[buffer, function_constant(sums_weight)]],
    device const float* bias_partials [[buffer, function_constant(sums_bias)]],
    device uchar* weight_gradient [[buffer, function_constant(sums_weight)]],
    device uchar* bias_gradient [[buffer, function_constant(sums_bias)]],
    constant const int& count [[buffer]],
    constant const int& columns [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float part[32][32];
  const bool of_weight = sums_weight && (!sums_bias || group.y == 0);
  int column = int(group.x * 32 + lane);
  float sum = 0.0f, error = 0.0f;
  if (column < columns) {
    for (int i = int(simd); i < count; i += 8 * int(simds)) {
      float v[8]; // eight loads at once
      for (int k = 0; k < 8; ++k) {
        int row = i + k * int(simds);
        long at = long(row) * columns + column;
        v[k] = row >= count ? 0.0f
            : of_weight     ? weight_partials[at]
                            : bias_partials[at];
      }
      for (int k = 0; k < 8; ++k) {
        add_compensated(sum, error, v[k]);
      }
    }
  }
  part[simd][lane] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0 && column < columns) {
    sum = error = 0.0f;
    for (int i = 0; i < int(simds); ++i) {
      add_compensated(sum, error, part[i][lane]);
    }
    device uchar* to = of_weight ? weight_gradient : bias_gradient;
    int type = of_weight ? weight_gradient_type : bias_gradient_type;
    store(to + long(column) * size_of(type), type, sum);
  }
}
