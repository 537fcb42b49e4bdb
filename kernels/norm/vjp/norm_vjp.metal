// Copyright (c) 2026 mlx_norms contributors
//
// The gradients of the norms. With wg the weighted cotangent and n the
// normalized row,
//
//   input = rstd * (wg - mean(wg) - n * mean(wg * n)) + the sum's cotangent
//
// without mean(wg) for RMSNorm; for l2 with sums instead of means, and without
// the last one where eps stands for the root. With a gate z, activated by a,
// the row that is normalized is x a(z), or the cotangent is multiplied by a(z);
// then the gate's gradient is that of the product times x, or the result before
// the gate times the cotangent, times the activation's slope. All sums over a
// row are taken in one pass. A persistent loop sums its part of the parameters'
// gradients in registers; clusters and sum_partials add up these parts. For
// rows too long for that, parameter_gradients sums them, with the statistics
// that are stored here.

#include "kernels/common/parameters.h"
#include "kernels/common/row_instances.h"
#include "kernels/norm/gate.h"
#include "kernels/norm/loop_sums.h"
#include "kernels/norm/rows_ahead.h"
#include "kernels/norm/statistics.h"

constant bool has_sum_cotangent [[function_constant]];
constant bool clamped_sum [[function_constant]];
constant bool want_input [[function_constant]];
constant bool want_weight [[function_constant]];
constant bool want_bias [[function_constant]];
constant bool keep_statistics [[function_constant]];
// The row is not normalized: its products with the weight have gradients.
constant bool identity [[function_constant]];

constant bool want_gate [[function_constant]];

constant int s_flags [[function_constant]];
constant int cotangent_flags [[function_constant]];
constant int sum_cotangent_flags [[function_constant]];
constant int input_gradient_flags [[function_constant]];
constant int gate_flags [[function_constant]];
constant int gate_gradient_flags [[function_constant]];
// One loop has all rows of a row of the weight: its sums are the gradients.
constant bool stores_gradients [[function_constant]];
constant int weight_gradient_flags [[function_constant]];
constant int bias_gradient_flags [[function_constant]];

// Whether the gradient of what is normalized is needed.
inline bool needs_weighted() {
  return want_input || (want_gate && gate_first);
}

// The arrays whose rows a persistent loop reads.
template <int N, int V>
struct Operands {
  RowsAhead<N, V> s, cotangent, sum_cotangent, gate;
  HeldWeight<N, V> weight;

  void fetch_ahead(
      PersistentLoop loop,
      uint iteration,
      int k,
      thread const RowThreads& threads,
      int length) thread {
    s.fetch_ahead(loop, iteration, k, threads, length);
    cotangent.fetch_ahead(loop, iteration, k, threads, length);
    if (has_gate) {
      gate.fetch_ahead(loop, iteration, k, threads, length);
    }
    if (has_sum_cotangent && stages > 0) {
      sum_cotangent.fetch_ahead(loop, iteration, k, threads, length);
    }
  }

  void arrive(
      PersistentLoop loop,
      uint iteration,
      thread const RowThreads& threads,
      int length) thread {
    s.arrive(loop, iteration, threads, length);
    cotangent.arrive(loop, iteration, threads, length);
    if (has_gate) {
      gate.arrive(loop, iteration, threads, length);
    }
    if (has_sum_cotangent && holds_sum_cotangent()) {
      sum_cotangent.arrive(loop, iteration, threads, length);
    } else if (has_sum_cotangent) {
      sum_cotangent.set_row(loop, iteration, length);
    }
  }

#ifdef __CUDACC__
  void clear_stages(
      PersistentLoop loop,
      thread const RowThreads& threads,
      int length) const thread {
    s.clear_stages(loop, threads, length);
    cotangent.clear_stages(loop, threads, length);
    if (has_gate) {
      gate.clear_stages(loop, threads, length);
    }
    if (has_sum_cotangent) {
      sum_cotangent.clear_stages(loop, threads, length);
    }
  }
#endif

  // Without stages it is read when it is needed: registers are too few. But on
  // CUDA a scattered row's many loads take long, and are issued at once.
  bool holds_sum_cotangent() const thread {
#ifdef __CUDACC__
    return scattered && V * N <= 16;
#else
    return false;
#endif
  }

  void sum_cotangent_vector(int k, Span<N> of, thread float* h) const thread {
    if (stages > 0 || holds_sum_cotangent()) {
      sum_cotangent.vector(k, of, h);
    } else {
      read<N>(sum_cotangent.row, of, h);
    }
  }

  // Vector k, which is `of`, of what is normalized and of its weighted
  // cotangent. A gate multiplies one of them.
  void input_and_weighted(int k, Span<N> of, thread float* x, thread float* wg)
      const thread {
    s.vector(k, of, x);
    if (needs_weighted()) {
      cotangent.vector(k, of, wg);
      weigh(k, of, wg);
    }
    if (has_gate && (gate_first || needs_weighted())) {
      float a[N];
      gate.vector(k, of, a);
      activate<N>(false, kFloat32, a);
      // A product with 1, as a choice of arrays would keep them in memory on
      // Metal.
      for (int j = 0; j < N; ++j) {
        x[j] *= gate_first ? a[j] : 1.0f;
      }
      if (needs_weighted()) {
        for (int j = 0; j < N; ++j) {
          wg[j] *= gate_first ? 1.0f : a[j];
        }
      }
    }
  }

  void weigh(int k, Span<N> of, thread float* g) const thread {
    if (has_weight) {
      weight.weigh(k, of, g);
    }
  }
};

// A row's statistics and the means that its gradient depends on.
struct RowSums {
  Statistics stats;
  float mean_wg;
  float mean_wgn;
};

// sum / length without a division, which needs too many registers. The fma
// corrects the error of scale = 1 / length, which would give a constant row a
// nonzero variance.
inline float mean_of(float sum, int length, float scale) {
  float mean = sum * scale;
  return fma(fma(-mean, float(length), sum), scale, mean);
}

// The means over the row of d, d * d and by * wg * d, where d = x - mean -
// correction.
template <int N, int V>
inline float4 weighted_deviation_means(
    thread const Operands<N, V>& operands,
    thread RowThreads& threads,
    int length,
    float scale,
    float mean,
    float correction,
    float by) {
  float4 sums = float4(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float x[N], wg[N];
      operands.input_and_weighted(k, of, x, wg);
      for (int j = 0; j < N; ++j) {
        float d = x[j] - mean - correction;
        d = of.has(j) ? d : 0.0f;
        sums.x += d;
        sums.y = fma(d, d, sums.y);
        sums.z = needs_weighted() ? fma(by * wg[j], d, sums.z) : 0.0f;
      }
    }
  }
  sums = threads.reduce(sums);
  return float4(
      mean_of(sums.x, length, scale),
      mean_of(sums.y, length, scale),
      sums.z * scale,
      0.0f);
}

// wg is multiplied by kScaleDown if the sum of wg * d is beyond float32. As the
// sum of d * d is not, the scaled sum is within float32.
constant constexpr float kScaleDown = 5.421010862427522e-20f; // 2^-64
constant constexpr float kScaleUp = 18446744073709551616.0f;

template <int N, int V>
inline RowSums row_sums(
    thread const Operands<N, V>& operands,
    thread RowThreads& threads,
    int length,
    float eps) {
  if (identity) {
    return RowSums{Statistics{0.0f, 0.0f, 1.0f}, 0.0f, 0.0f};
  }
  float4 sums = float4(0.0f); // of x, x * x, wg and wg * x
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    float2 of_x = float2(0.0f), of_wg = float2(0.0f);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float x[N], wg[N];
      operands.input_and_weighted(k, of, x, wg);
      for (int j = 0; j < N; ++j) {
        of_x = add_first(of_x, x[j]);
        if (needs_weighted()) {
          of_wg.x = center ? of_wg.x + wg[j] : 0.0f;
          of_wg.y = fma(wg[j], x[j], of_wg.y);
        }
      }
    }
    sums += float4(of_x.x, of_x.y, of_wg.x, of_wg.y);
  }
  float scale = 1.0f / float(length);
  if (!center) {
    float2 means = threads.reduce(float2(sums.y, sums.w));
    means = l2 ? means : means * scale;
    float rstd = root_factor(means.x, eps);
    float mean_wgn = is_constant(rstd, eps) ? 0.0f : means.y * rstd;
    return RowSums{Statistics{0.0f, 0.0f, rstd}, 0.0f, mean_wgn};
  }
  float4 means = threads.reduce(sums) * scale;
  float mean = means.x;
  float correction = 0.0f;
  float variance = means.y - mean * mean;
  float wgd = means.w - mean * means.z; // d = x - mean - correction
  float more = 1.0f;                    // undoes the scaling of wgd
  bool lost = is_lost(variance, mean * mean);
  bool again = lost || !is_finite(wgd);
  if (for_any_row(again)) {
    float by = is_finite(wgd) ? 1.0f : kScaleDown;
    more = is_finite(wgd) ? 1.0f : kScaleUp;
    float4 of_d = weighted_deviation_means<N, V>(
        operands, threads, length, scale, mean, 0.0f, by);
    wgd = again ? of_d.z - of_d.x * (by * means.z) : wgd;
    if (lost) { // else keep the forward's statistics
      correction = of_d.x;
      variance = of_d.y - correction * correction;
      lost = is_lost(variance, correction * correction);
    }
    if (for_any_row(lost)) {
      of_d = weighted_deviation_means<N, V>(
          operands, threads, length, scale, mean, correction, by);
      if (lost) {
        wgd = of_d.z - of_d.x * (by * means.z);
        correction += of_d.x;
        variance = finite_or_nan(of_d.y - of_d.x * of_d.x);
      }
    }
  }
  float rstd = precise::rsqrt(variance + eps);
  return RowSums{
      Statistics{mean, correction, rstd}, means.z, wgd * rstd * more};
}

template <int N, int V, int THREADS> // the most threads per threadgroup
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm_vjp(
    device const uchar* s [[buffer]], // x, or x + residual, rounded
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* cotangent [[buffer]],
    device const uchar* sum_cotangent
    [[buffer, function_constant(has_sum_cotangent)]],
    device uchar* input_gradient [[buffer, function_constant(want_input)]],
    device uchar* weight_partials [[buffer, function_constant(want_weight)]],
    device uchar* bias_partials [[buffer, function_constant(want_bias)]],
    device float* kept_statistics
    [[buffer, function_constant(keep_statistics)]],
    constant const int* layouts [[buffer]],
    constant const int& rows [[buffer]],
    constant const int& length [[buffer]],
    constant const int& heads [[buffer]],
    constant const int& rows_per_loop [[buffer]],
    constant const int& loops [[buffer]],
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    device const uchar* gate [[buffer, function_constant(has_gate)]],
    device uchar* gate_gradient [[buffer, function_constant(want_gate)]],
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
      index,
      rows,
      heads,
      rows_per_loop,
      uint(rows_per_simd()),
      row_in_simd(lane));

  Operands<N, V> operands;
  operands.s.begin(s, s_flags, layouts, 0);
  operands.cotangent.begin(cotangent, cotangent_flags, layouts, 1);
  if (has_sum_cotangent) {
    operands.sum_cotangent.begin(
        sum_cotangent, sum_cotangent_flags, layouts, 2);
  }
  if (has_gate) { // in the place of the sum's, which no gated norm has
    operands.gate.begin(gate, gate_flags, layouts, 2);
  }
  if (has_weight) {
    operands.weight.hold(
        row_in(weight, weight_flags, layouts, loop.row, length),
        weight_offset,
        0,
        threads,
        length);
  }

  LoopSums<N, V> dw, db;
  dw.begin(want_weight);
  db.begin(want_bias);

#ifdef __CUDACC__
  if (stages > 0) {
    operands.clear_stages(loop, threads, length);
  }
#endif
  for (int iteration = 0; iteration < (stages > 0 ? stages : 1); ++iteration) {
    for (int k = 0; k < V; ++k) {
      if (!looped && uint(iteration) < loop.iterations()) {
        operands.fetch_ahead(loop, iteration, k, threads, length);
      }
    }
    group_fetches();
  }
  for (uint iteration = 0; iteration < loop.iterations(); ++iteration) {
    await_fetches();
    operands.arrive(loop, iteration, threads, length);
    if (!looped && stages == 0 && iteration + 1 < loop.iterations()) {
      // Fetch the next row while this one is computed.
      for (int k = 0; k < V; ++k) {
        operands.fetch_ahead(loop, iteration + 1, k, threads, length);
      }
    }
    RowSums sums = row_sums<N, V>(operands, threads, length, eps);
    if (keep_statistics && threads.thread_index() == 0) {
      device float* kept = kept_statistics + 3 * long(loop.at(iteration));
      kept[0] = sums.stats.mean;
      kept[1] = sums.stats.correction;
      kept[2] = sums.stats.rstd;
    }
    if (looped && !want_input && !want_gate) {
      continue;
    }

    bool has_row = loop.has(iteration);
    float rstd = sums.stats.rstd;
    RowOut out, gate_out;
    if (want_gate) {
      assign(
          gate_out,
          row_out(
              gate_gradient, gate_gradient_flags, loop.at(iteration), length));
    }
    if (want_input) {
      assign(
          out,
          row_out(
              input_gradient,
              input_gradient_flags,
              loop.at(iteration),
              length));
    }
    for (int chunk = 0; next_chunk(chunk, length);
         chunk += chunk_length<N, V>()) {
      for (int k = 0; k < V; ++k) {
        Span<N> of = span_of<N>(threads, chunk, k, length);
        float x[N], g[N], h[N], dx[N], z[N], a[N], of_slope[N];
        operands.s.vector(k, of, x);
        operands.cotangent.vector(k, of, g);
        if (has_sum_cotangent && stages > 0) {
          operands.sum_cotangent_vector(k, of, h); // before its stage is reused
        }
        if (has_gate) {
          operands.gate.vector(k, of, z);
        }
        if (stages > 0 && iteration + stages < loop.iterations()) {
          operands.fetch_ahead(loop, iteration + stages, k, threads, length);
        }
        if (has_gate) {
          for (int j = 0; j < N; ++j) {
            a[j] = z[j];
          }
          activate<N>(false, kFloat32, a);
          for (int j = 0; j < N; ++j) {
            of_slope[j] = x[j];
            x[j] = gate_first ? x[j] * a[j] : x[j];
          }
        }
        for (int j = 0; j < N; ++j) {
          float n = sums.stats.normalize(x[j]);
          float of_n = has_gate && !gate_first ? g[j] * a[j] : g[j];
          float of_g = has_row ? of_n : 0.0f;
          if (want_weight && !looped) {
            float sum = dw.of[k * N + j];
            dw.of[k * N + j] = fma(of_g, has_row ? n : 0.0f, sum);
          }
          if (want_bias && !looped) {
            db.of[k * N + j] += of_g;
          }
        }
        if (!want_input && !want_gate) {
          continue;
        }
        operands.weigh(k, of, g);
        if (has_gate && !gate_first) {
          for (int j = 0; j < N; ++j) {
            of_slope[j] = g[j] * sums.stats.normalize(x[j]);
            g[j] *= a[j];
          }
        }
        if (has_sum_cotangent && stages == 0 && has_row) {
          operands.sum_cotangent_vector(k, of, h);
        }
        for (int j = 0; j < N; ++j) {
          float n = sums.stats.normalize(x[j]);
          float d = g[j] * rstd;
          d = center ? fma(g[j], rstd, -sums.mean_wg * rstd) : d;
          d = identity ? g[j] : fma(-n, sums.mean_wgn * rstd, d);
          d = has_sum_cotangent ? d + h[j] : d;
          dx[j] = clamped_sum && fabs(x[j]) == 65504.0f ? 0.0f : d;
        }
        if (want_gate) {
          float dz[N];
          activation_slope<N>(z, dz);
          for (int j = 0; j < N; ++j) {
            dz[j] *= gate_first ? dx[j] * of_slope[j] : of_slope[j];
          }
          if (has_row) {
            write<N>(gate_out, of, dz);
          }
        }
        if (has_gate && gate_first) {
          for (int j = 0; j < N; ++j) {
            dx[j] *= a[j];
          }
        }
        if (want_input && has_row) {
          write<N>(out, of, dx);
        }
      }
    }
    group_fetches();
  }

  if (looped) {
    return;
  }
  int dw_flags = stores_gradients ? weight_gradient_flags : kPartialFlags;
  int db_flags = stores_gradients ? bias_gradient_flags : kPartialFlags;
  uint to = partial_row(index);
  if (want_weight) {
    assign(dw.out, row_out(weight_partials, dw_flags, to, length));
  }
  if (want_bias) {
    assign(db.out, row_out(bias_partials, db_flags, to, length));
  }
  store_sums<N, V>(dw, db, lane, threads, length);
}

#define INSTANTIATE_NORM_VJP(N, V, THREADS)                             \
  template [[host_name("norm_vjp_" #N "_" #V "_" #THREADS)]] [[kernel]] \
  decltype(norm_vjp<N, V, THREADS>) norm_vjp<N, V, THREADS>;

#ifdef __CUDACC__
FOR_BACKWARD_ON_CUDA(INSTANTIATE_NORM_VJP)
#else
FOR_BACKWARD_ON_METAL(INSTANTIATE_NORM_VJP)
#endif
