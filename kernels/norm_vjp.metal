// Copyright (c) 2026 mlx_norms contributors
//
// The gradients of the norms. With wg the weighted cotangent and n the
// normalised row,
//
//   input = rstd * (wg - mean(wg) - n * mean(wg * n)) + the sum's cotangent
//
// without mean(wg) where the mean is not subtracted. A team sums its part of
// the parameters' gradients in registers; sum_partials adds up the teams'.
// Rows too long for that leave it to parameter_gradients, with their
// statistics.

#include "kernels/parameters.h"
#include "kernels/statistics.h"
#include "kernels/walk.h"

constant bool has_sum_cotangent [[function_constant(30)]];
constant bool clamped_sum [[function_constant(31)]];
constant bool want_input [[function_constant(32)]];
constant bool want_weight [[function_constant(33)]];
constant bool want_bias [[function_constant(34)]];
constant bool keep_statistics [[function_constant(35)]];

constant int s_access [[function_constant(40)]];
constant int cotangent_access [[function_constant(41)]];
constant int sum_cotangent_access [[function_constant(42)]];
constant int input_access [[function_constant(43)]];

template <int N, int V>
[[kernel, max_total_threads_per_threadgroup(1024)]] void norm_vjp(
    device const uchar* s [[buffer(0)]], // x, or the rounded sum
    device const uchar* weight [[buffer(1), function_constant(has_weight)]],
    device const uchar* cotangent [[buffer(2)]],
    device const uchar* sum_cotangent
    [[buffer(3), function_constant(has_sum_cotangent)]],
    device uchar* input_gradient [[buffer(4), function_constant(want_input)]],
    device uchar* weight_partials [[buffer(5), function_constant(want_weight)]],
    device uchar* bias_partials [[buffer(6), function_constant(want_bias)]],
    device float* kept_statistics
    [[buffer(7), function_constant(keep_statistics)]],
    constant const int* s_layout [[buffer(8)]],
    constant const int* weight_layout
    [[buffer(9), function_constant(has_weight)]],
    constant const int* cotangent_layout [[buffer(10)]],
    constant const int* sum_cotangent_layout
    [[buffer(11), function_constant(has_sum_cotangent)]],
    constant const int& rows [[buffer(12)]],
    constant const int& length [[buffer(13)]],
    constant const int& heads [[buffer(14)]],
    constant const int& rows_per_team [[buffer(15)]],
    constant const int& teams [[buffer(16)]],
    constant const float& eps [[buffer(17)]],
    constant const float& weight_offset [[buffer(18)]],
    uint group [[threadgroup_position_in_grid]],
    uint simds_per_group [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float2 partial[2 * kMaxSimds];
  Team team = make_team(simd, lane, partial);
  uint index = team_index(group, simds_per_group, simd);
  if (index >= uint(teams)) {
    return; // a whole SIMD-group, in a launch without barriers
  }
  Walk walk = make_walk(index, rows, heads, rows_per_team);

  float dw[V * N], db[V * N];
  for (int e = 0; e < V * N; ++e) {
    dw[e] = db[e] = 0.0f;
  }

  uint4 s_bits[V], g_bits[V];
  for (uint turn = 0; turn < walk.count; ++turn) {
    uint row = walk.row + turn * walk.step;
    RowIn s_row = row_in(s, s_access, s_layout, row, length);
    RowIn g_row =
        row_in(cotangent, cotangent_access, cotangent_layout, row, length);
    if (!looped && turn == 0) {
      fetch_row<N, V>(s_row, team, length, s_bits);
      fetch_row<N, V>(g_row, team, length, g_bits);
    }
    RowIn w_row, h_row;
    if (has_weight) {
      w_row = row_in(weight, weight_access, weight_layout, row, length);
    }
    if (has_sum_cotangent) {
      h_row = row_in(
          sum_cotangent,
          sum_cotangent_access,
          sum_cotangent_layout,
          row,
          length);
    }

    float v[V * N], g[V * N];
    if (!looped) {
      read_fetched<N, V>(s_row, team, length, s_bits, v);
      read_fetched<N, V>(g_row, team, length, g_bits, g);
    }
    if (!looped && turn + 1 < walk.count) {
      // The next row comes while this one is worked on.
      uint next = row + walk.step;
      fetch_row<N, V>(
          row_in(s, s_access, s_layout, next, length), team, length, s_bits);
      fetch_row<N, V>(
          row_in(cotangent, cotangent_access, cotangent_layout, next, length),
          team,
          length,
          g_bits);
    }
    float first = 0.0f;
    for (int chunk = 0; next_chunk(chunk, length);
         chunk += chunk_length<N, V>()) {
      if (looped) {
        read_chunk<N, V>(s_row, team, chunk, length, v);
      }
      for (int k = 0; k < V; ++k) {
        first += first_sum<N>(v + k * N);
      }
    }
    Statistics stats =
        statistics<N, V>(first, s_row, team, length, eps, !clamped_sum, v);
    if (keep_statistics && team.thread_index() == 0) {
      device float* kept = kept_statistics + 3 * long(row);
      kept[0] = stats.mean;
      kept[1] = stats.correction;
      kept[2] = stats.rstd;
    }

    if (looped && !want_input) {
      continue;
    }

    // The weighted cotangent takes the place of the cotangent once the
    // parameters' sums have taken their terms.
    float2 sums = float2(0.0f);
    for (int chunk = 0; next_chunk(chunk, length);
         chunk += chunk_length<N, V>()) {
      if (looped) {
        read_chunk<N, V>(s_row, team, chunk, length, v);
        read_chunk<N, V>(g_row, team, chunk, length, g);
      }
      for (int k = 0; k < V; ++k) {
        int i = element<N>(team, chunk, k);
        thread float* g_of = g + k * N;
        float w[N];
        float2 terms = float2(0.0f);
        if (has_weight) {
          read_weight<N>(w_row, i, length, weight_offset, w);
        }
        for (int j = 0; j < N; ++j) {
          int e = k * N + j;
          float n = stats.normalise(v[e]);
          if (want_weight && !looped) {
            dw[e] = fma(g_of[j], n, dw[e]);
          }
          if (want_bias && !looped) {
            db[e] += g_of[j];
          }
          g_of[j] = has_weight ? g_of[j] * w[j] : g_of[j]; // 0 past the end
          terms = float2(terms.x + g_of[j], fma(g_of[j], n, terms.y));
        }
        sums += terms;
      }
    }
    if (!want_input) {
      continue;
    }
    sums = team.reduce(sums) / float(length);
    float mean_wg = centre ? sums.x : 0.0f;

    RowOut out = row_out(input_gradient, input_access, row, length);
    for (int chunk = 0; next_chunk(chunk, length);
         chunk += chunk_length<N, V>()) {
      if (looped) {
        read_chunk<N, V>(s_row, team, chunk, length, v);
        read_chunk<N, V>(g_row, team, chunk, length, g);
      }
      for (int k = 0; k < V; ++k) {
        int i = element<N>(team, chunk, k);
        float dx[N], h[N], w[N];
        if (has_sum_cotangent) {
          read<N>(h_row, i, length, h);
        }
        if (looped && has_weight) {
          read_weight<N>(w_row, i, length, weight_offset, w);
        }
        for (int j = 0; j < N; ++j) {
          float x = v[k * N + j];
          float wg = g[k * N + j];
          wg = looped && has_weight ? wg * w[j] : wg;
          float d = fma(-stats.normalise(x), sums.y, wg - mean_wg) * stats.rstd;
          d = has_sum_cotangent ? d + h[j] : d;
          dx[j] = clamped_sum && fabs(x) == 65504.0f ? 0.0f : d;
        }
        write<N>(out, i, length, dx);
      }
    }
  }

  if (looped) {
    return;
  }
  int access = kFloat32 | (length % 4 == 0 ? kVectors : 0);
  for (int k = 0; k < V; ++k) {
    int i = element<N>(team, 0, k);
    if (want_weight) {
      RowOut out = row_out(weight_partials, access, index, length);
      write<N>(out, i, length, dw + k * N);
    }
    if (want_bias) {
      RowOut out = row_out(bias_partials, access, index, length);
      write<N>(out, i, length, db + k * N);
    }
  }
}

#define INSTANTIATE_NORM_VJP(N, V)                         \
  template [[host_name("norm_vjp_" #N "_" #V)]] [[kernel]] \
  decltype(norm_vjp<N, V>) norm_vjp<N, V>;

INSTANTIATE_NORM_VJP(4, 1)
INSTANTIATE_NORM_VJP(4, 2)
INSTANTIATE_NORM_VJP(4, 4)
INSTANTIATE_NORM_VJP(8, 1)
INSTANTIATE_NORM_VJP(8, 2)
