// Copyright (c) 2026 mlx_norms contributors
//
// The gradients of norm_add_norm, whose sum h = residual + norm(x) is read.
// With n the normalized row and wg the weighted cotangent, that of an RMSNorm
// is
//
//   rstd * (wg - n * mean(wg * n))
//
// For h's norm, this and the sum's cotangent are the gradient of h and of the
// residual; rounded to h's dtype, it is the cotangent of x's norm. So each row
// is read once and stored once. A persistent loop sums its part of the weights'
// gradients in registers.

#include "kernels/common/parameters.h"
#include "kernels/common/row_instances.h"
#include "kernels/norm/held_row.h"
#include "kernels/norm/loop_sums.h"
#include "kernels/norm/rows_ahead.h"

constant bool has_post_weight [[function_constant]];
constant bool clamped_sum [[function_constant]];
constant bool want_post_weight [[function_constant]];
constant bool want_weight [[function_constant]];

constant int x_flags [[function_constant]];
constant int sum_flags [[function_constant]];
constant int post_weight_flags [[function_constant]];
constant int cotangent_flags [[function_constant]];
constant int sum_cotangent_flags [[function_constant]];
constant int x_gradient_flags [[function_constant]];
constant int sum_gradient_flags [[function_constant]];

// One of the norms: its input's rows and its weight.
template <int N, int V>
struct NormOperands {
  RowsAhead<N, V> input;
  HeldWeight<N, V> weight;
  bool weighted;

  void weigh(int k, Span<N> of, thread float* g) const thread {
    if (weighted) {
      weight.weigh(k, of, g);
    }
  }
};

// What a row's gradient depends on.
struct RootSums {
  float rstd;
  float mean_wgn;

  float gradient(float wg, float v) const thread {
    return fma(-(v * rstd), mean_wgn * rstd, wg * rstd);
  }
};

// Statistics from this thread's sums of v * v and wg * v.
inline RootSums
root_sums(float2 sums, thread RowThreads& threads, int length, float eps) {
  float2 means = threads.reduce(sums) * (1.0f / float(length));
  float rstd = precise::rsqrt(means.x + eps);
  return RootSums{rstd, means.y * rstd};
}

template <int N, int V, int THREADS> // the most threads per threadgroup
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm_add_norm_vjp(
    device const uchar* x [[buffer]],
    device const uchar* sum [[buffer]],
    device const uchar* post_weight
    [[buffer, function_constant(has_post_weight)]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* cotangent [[buffer]],
    device const uchar* sum_cotangent [[buffer]],
    device uchar* x_gradient [[buffer]],
    device uchar* sum_gradient [[buffer]],
    device uchar* post_weight_partials
    [[buffer, function_constant(want_post_weight)]],
    device uchar* weight_partials [[buffer, function_constant(want_weight)]],
    constant const int* layouts [[buffer]],
    constant const int& rows [[buffer]],
    constant const int& length [[buffer]],
    constant const int& rows_per_loop [[buffer]],
    constant const int& loops [[buffer]],
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint simds_per_group [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[2 * kMaxSimds];
  RowThreads threads = make_row_threads(simd, lane, partial);
  uint index = row_threads_index(group, simds_per_group, simd);
  if (cluster == 1 && index >= uint(loops)) {
    return; // a whole SIMD-group, in a launch without barriers
  }
  PersistentLoop loop = make_loop(
      index, rows, 1, rows_per_loop, uint(rows_per_simd()), row_in_simd(lane));

  NormOperands<N, V> of_h, of_x;
  RowsAhead<N, V> of_y, of_sum; // cotangents
  of_h.input.begin(sum, sum_flags, layouts, 0);
  of_y.begin(cotangent, cotangent_flags, layouts, 1);
  of_sum.begin(sum_cotangent, sum_cotangent_flags, layouts, 2);
  of_x.input.begin(x, x_flags, layouts, 3);
  of_h.weighted = has_weight;
  of_x.weighted = has_post_weight;
  if (has_weight) {
    of_h.weight.hold(
        row_in(weight, weight_flags, layouts, 0, length),
        weight_offset,
        0,
        threads,
        length);
  }
  if (has_post_weight) {
    of_x.weight.hold(
        row_in(post_weight, post_weight_flags, layouts, 0, length),
        weight_offset,
        int(has_weight),
        threads,
        length);
  }

  LoopSums<N, V> dw, dw_post;
  dw.begin(want_weight);
  dw_post.begin(want_post_weight);

#ifdef __CUDACC__
  if (stages > 0) {
    of_h.input.clear_stages(loop, threads, length);
    of_y.clear_stages(loop, threads, length);
    of_sum.clear_stages(loop, threads, length);
    of_x.input.clear_stages(loop, threads, length);
  }
#endif
  for (int iteration = 0; iteration < stages; ++iteration) {
    for (int k = 0; k < V; ++k) {
      if (uint(iteration) < loop.iterations()) {
        of_h.input.fetch_ahead(loop, iteration, k, threads, length);
        of_y.fetch_ahead(loop, iteration, k, threads, length);
        of_sum.fetch_ahead(loop, iteration, k, threads, length);
        of_x.input.fetch_ahead(loop, iteration, k, threads, length);
      }
    }
    group_fetches();
  }
  for (uint iteration = 0; iteration < loop.iterations(); ++iteration) {
    await_fetches();
    bool has_row = loop.has(iteration);
    bool fetches = stages > 0 && iteration + stages < loop.iterations();

    of_h.input.arrive(loop, iteration, threads, length);
    of_y.arrive(loop, iteration, threads, length);
    of_sum.set_row(loop, iteration, length);
    float2 sums = float2(0.0f);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      float h[N], wg[N];
      of_h.input.vector(k, of, h);
      of_y.vector(k, of, wg);
      of_h.weigh(k, of, wg);
      for (int j = 0; j < N; ++j) {
        sums = float2(fma(h[j], h[j], sums.x), fma(wg[j], h[j], sums.y));
      }
    }
    RootSums root = root_sums(sums, threads, length, eps);

    of_x.input.arrive(loop, iteration, threads, length);
    RowOut out =
        row_out(sum_gradient, sum_gradient_flags, loop.at(iteration), length);
    HeldRow<N, V> held; // of the sum's gradient
    sums = float2(0.0f);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      float h[N], g[N], d[N], v[N];
      of_h.input.vector(k, of, h);
      of_y.vector(k, of, g);
      if (stages > 0) {
        of_sum.vector(k, of, d);
      } else if (has_row) {
        read<N>(of_sum.row, of, d);
      } else {
        clear<N>(d);
      }
      if (fetches) {
        of_h.input.fetch_ahead(loop, iteration + stages, k, threads, length);
        of_y.fetch_ahead(loop, iteration + stages, k, threads, length);
        of_sum.fetch_ahead(loop, iteration + stages, k, threads, length);
      }
      for (int j = 0; j < N; ++j) {
        float of_row = has_row ? g[j] : 0.0f;
        float n = has_row ? h[j] * root.rstd : 0.0f;
        float sum = dw.of[k * N + j];
        dw.of[k * N + j] = want_weight ? fma(of_row, n, sum) : 0.0f;
      }
      of_h.weigh(k, of, g);
      for (int j = 0; j < N; ++j) {
        d[j] = root.gradient(g[j], h[j]) + d[j];
        d[j] = clamped_sum && fabs(h[j]) == 65504.0f ? 0.0f : d[j];
      }
      round_vector<N>(out.type, d);
      if (has_row) {
        write_rounded<N>(out, of, d);
      }
      held.put_vector(k, out.type, d);
      of_x.input.vector(k, of, v);
      of_x.weigh(k, of, d);
      for (int j = 0; j < N; ++j) {
        sums = float2(fma(v[j], v[j], sums.x), fma(d[j], v[j], sums.y));
      }
    }
    root = root_sums(sums, threads, length, eps);

    RowIn kept = as_input(out);
    assign(
        out, row_out(x_gradient, x_gradient_flags, loop.at(iteration), length));
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      float v[N], g[N];
      of_x.input.vector(k, of, v);
      if (fetches) {
        of_x.input.fetch_ahead(loop, iteration + stages, k, threads, length);
      }
      held.get_vector(kept, k, of, g);
      for (int j = 0; j < N; ++j) {
        float of_row = has_row ? g[j] : 0.0f;
        float n = has_row ? v[j] * root.rstd : 0.0f;
        float sum = dw_post.of[k * N + j];
        dw_post.of[k * N + j] = want_post_weight ? fma(of_row, n, sum) : 0.0f;
      }
      of_x.weigh(k, of, g);
      for (int j = 0; j < N; ++j) {
        g[j] = root.gradient(g[j], v[j]);
      }
      if (has_row) {
        write<N>(out, of, g);
      }
    }
    group_fetches();
  }

  uint to = partial_row(index);
  if (want_weight) {
    assign(dw.out, row_out(weight_partials, kPartialFlags, to, length));
  }
  if (want_post_weight) {
    assign(
        dw_post.out, row_out(post_weight_partials, kPartialFlags, to, length));
  }
  store_sums<N, V>(dw, dw_post, lane, threads, length);
}

#define INSTANTIATE_NORM_ADD_NORM_VJP(N, V, THREADS)            \
  template [[host_name(                                         \
      "norm_add_norm_vjp_" #N "_" #V "_" #THREADS)]] [[kernel]] \
  decltype(norm_add_norm_vjp<N, V, THREADS>) norm_add_norm_vjp<N, V, THREADS>;

#ifdef __CUDACC__
FOR_TWO_BACKWARD_ON_CUDA(INSTANTIATE_NORM_ADD_NORM_VJP)
#else
FOR_TWO_BACKWARD_ON_METAL(INSTANTIATE_NORM_ADD_NORM_VJP)
#endif
