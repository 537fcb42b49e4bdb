// Copyright (c) 2026 mlx_norms contributors
//
// RMSNorm of residual + RMSNorm(x), or of residual + factor * RMSNorm(x), and
// that sum. A row that fits in registers is read once and stored once.

#include "kernels/common/parameters.h"
#include "kernels/norm/add_residual.h"
#include "kernels/norm/factor.h"
#include "kernels/norm/fetched_row.h"
#include "kernels/norm/statistics.h"

constant bool has_post_weight [[function_constant(10)]];
constant bool round_early [[function_constant(12)]]; // before the weights
constant int x_flags [[function_constant(20)]];
constant int residual_flags [[function_constant(21)]];
constant int post_weight_flags [[function_constant(22)]];
constant int normalized_flags [[function_constant(24)]];
constant int sum_flags [[function_constant(25)]];

// The elements v of a row, normalized and weighted; early, each step rounds.
template <int N>
inline void normalize_and_weigh(
    Statistics of_row,
    bool weighted,
    thread const float* w,
    int type,
    thread float* v) {
  for (int j = 0; j < N; ++j) {
    v[j] = of_row.normalize(v[j]);
  }
  if (round_early) {
    round_vector<N>(type, v);
  }
  if (weighted) {
    for (int j = 0; j < N; ++j) {
      v[j] *= w[j];
    }
    if (round_early) {
      round_vector<N>(type, v);
    }
  }
}

template <int N, int V, int THREADS> // the most threads per threadgroup
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm_add_norm(
    device const uchar* x [[buffer(0)]],
    device const uchar* residual [[buffer(1)]],
    device const uchar* post_weight
    [[buffer(2), function_constant(has_post_weight)]],
    device const uchar* weight [[buffer(3), function_constant(has_weight)]],
    device uchar* normalized [[buffer(4)]],
    device uchar* sum [[buffer(5)]],
    constant const int* layouts [[buffer(6)]],
    constant const int& rows [[buffer(7)]],
    constant const int& length [[buffer(8)]],
    constant const float& eps [[buffer(9)]],
    constant const float& weight_offset [[buffer(10)]],
    device const uchar* factor [[buffer(11), function_constant(has_factor)]],
    constant const float& number [[buffer(12)]],
    uint group [[threadgroup_position_in_grid]],
    uint simds_per_group [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[2 * kMaxSimds];
  RowThreads threads = make_row_threads(simd, lane, partial);
  uint row = row_threads_index(group, simds_per_group, simd) * rows_per_simd() +
      row_in_simd(lane);
  if (row >= uint(rows)) {
    return; // all lanes of a row, in a launch without barriers
  }

  RowIn in = row_in(x, x_flags, layouts, row, length);
  RowOut s = row_out(sum, sum_flags, row, length);
  RowOut out = row_out(normalized, normalized_flags, row, length);
  FetchedRow<N, V> x_row, post, w_row, f;
#ifdef __CUDACC__
  FetchedRow<N, V, true> r;
#else
  FetchedRow<N, V, N == 8 || (THREADS < 1024)> r; // else registers are few
#endif
  x_row.fetch_all(in, threads, length);
  r.fetch_all(
      row_in(residual, residual_flags, layouts, row, length), threads, length);
  if (has_post_weight) {
    post.fetch_all(
        row_in(post_weight, post_weight_flags, layouts, row, length),
        threads,
        length);
  }
  if (has_factor) {
    f.fetch_all(
        row_in(factor, factor_flags, layouts, row, length), threads, length);
  }
  if (has_weight) {
    w_row.fetch_all(
        row_in(weight, weight_flags, layouts, row, length), threads, length);
  }

  HeldRow<N, V> held;
  float2 first = float2(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    float2 of_chunk = float2(0.0f);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float v[N];
      if (fetch_first) {
        x_row.values(k, of, v);
        held.put_vector(k, in.type, v);
      } else {
        held.read_vector(in, k, of, v);
      }
      for (int j = 0; j < N; ++j) {
        of_chunk = add_first(of_chunk, v[j]);
      }
    }
    first += of_chunk;
  }
  Statistics of_x = statistics<N, V>(first, in, threads, length, eps, held);

  first = float2(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    float2 of_chunk = float2(0.0f);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float v[N], w[N], of_r[N];
      held.get_vector(in, k, of, v);
      if (has_post_weight) {
        post.values(k, of, w);
        add_offset<N>(weight_offset, w);
      }
      normalize_and_weigh<N>(of_x, has_post_weight, w, in.type, v);
      if (has_factor || has_number) {
        float of_f[N];
        clear<N>(of_f);
        if (has_factor) {
          f.values(k, of, of_f);
        }
        multiply<N>(of_f, number, in.type, v);
      }
      r.values(k, of, of_r);
      add_residual<N>(of_r, s.type, v);
      write_rounded<N>(s, of, v);
      held.put_vector(k, s.type, v);
      for (int j = 0; j < N; ++j) {
        of_chunk = add_first(of_chunk, v[j]);
      }
    }
    first += of_chunk;
  }
  in = as_input(s); // written by the thread that reads it
  Statistics of_s = statistics<N, V>(first, in, threads, length, eps, held);

  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float v[N], w[N];
      held.get_vector(in, k, of, v);
      if (has_weight) {
        w_row.values(k, of, w);
        add_offset<N>(weight_offset, w);
      }
      normalize_and_weigh<N>(of_s, has_weight, w, out.type, v);
      write<N>(out, of, v);
    }
  }
}

#define INSTANTIATE_NORM_ADD_NORM(N, V, THREADS)                             \
  template [[host_name("norm_add_norm_" #N "_" #V "_" #THREADS)]] [[kernel]] \
  decltype(norm_add_norm<N, V, THREADS>) norm_add_norm<N, V, THREADS>;

// The combinations that csrc/gpu/geometry.cpp chooses.
#ifdef __CUDACC__
INSTANTIATE_NORM_ADD_NORM(4, 1, 1024)
INSTANTIATE_NORM_ADD_NORM(4, 2, 1024)
INSTANTIATE_NORM_ADD_NORM(4, 3, 1024)
INSTANTIATE_NORM_ADD_NORM(4, 4, 1024)
INSTANTIATE_NORM_ADD_NORM(4, 6, 1024)
INSTANTIATE_NORM_ADD_NORM(4, 8, 1024)
INSTANTIATE_NORM_ADD_NORM(8, 1, 1024)
INSTANTIATE_NORM_ADD_NORM(8, 2, 1024)
INSTANTIATE_NORM_ADD_NORM(8, 3, 1024)
INSTANTIATE_NORM_ADD_NORM(8, 4, 1024)
INSTANTIATE_NORM_ADD_NORM(8, 5, 1024)
#else
INSTANTIATE_NORM_ADD_NORM(4, 1, 512)
INSTANTIATE_NORM_ADD_NORM(4, 2, 512)
INSTANTIATE_NORM_ADD_NORM(4, 3, 512)
INSTANTIATE_NORM_ADD_NORM(4, 4, 512)
INSTANTIATE_NORM_ADD_NORM(4, 4, 1024)
INSTANTIATE_NORM_ADD_NORM(8, 1, 512)
INSTANTIATE_NORM_ADD_NORM(8, 2, 512)
INSTANTIATE_NORM_ADD_NORM(8, 2, 1024)
#endif
