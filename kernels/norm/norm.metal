// Copyright (c) 2026 mlx_norms contributors
//
// RMSNorm and LayerNorm of x, of x + residual, or of RMSNorm(x) + residual. A
// row that fits in registers is read once and stored once.

#include "kernels/common/parameters.h"
#include "kernels/common/row_instances.h"
#include "kernels/norm/add_residual.h"
#include "kernels/norm/factor.h"
#include "kernels/norm/gate.h"
#include "kernels/norm/modulate.h"
#include "kernels/norm/norm_first.h"
#include "kernels/norm/steps.h"

constant bool has_residual [[function_constant]];
constant bool has_residual2 [[function_constant]];
constant bool has_alpha [[function_constant]]; // of the residual

constant int x_flags [[function_constant]];
constant int residual_flags [[function_constant]];
constant int residual2_flags [[function_constant]];
constant int normalized_flags [[function_constant]];
constant int sum_flags [[function_constant]];
// The factor has one element, for the rounded sum of x and the residual.
constant bool factor_of_sum [[function_constant]];
constant int gate_flags [[function_constant]];
constant bool round_gated [[function_constant]]; // x's products, likewise

// Whether what is normalized is x times its gate, not rounded to x's dtype.
inline bool holds_floats() {
  return gate_first && !round_gated;
}

// Multiplies the elements v of x, or of the result, by those of its gate, which
// are activated.
template <int N>
inline void multiply_by_gate(thread float* gate, thread float* v) {
  activate<N>(round_early, float_type(gate_flags), gate);
  for (int j = 0; j < N; ++j) {
    v[j] = v[j] * gate[j];
  }
}

// The same, of x.
template <int N, int V>
inline void gate_input(
    thread const FetchedRow<N, V>& gate_row,
    int k,
    Span<N> of,
    int type,
    thread float* v) {
  float z[N];
  gate_row.values(k, of, z);
  multiply_by_gate<N>(z, v);
  if (round_gated) {
    round_vector<N>(type, v);
  }
}

#ifdef __CUDACC__
// Whether a sum's values all have the same 16 bits, to which each step rounds:
// then two are added or multiplied by one instruction.
template <int N>
inline bool sums_packed(
    RowIn x,
    RowIn residual,
    RowIn residual2,
    RowIn factor,
    RowOut sum,
    Span<N> of) {
  return !clamp_sum && !has_number && !has_alpha && !factor_of_sum &&
      sum.type != kFloat32 && can_store<N>(sum, of) && x.type == sum.type &&
      can_fetch<N>(x, of) && residual.type == sum.type &&
      can_fetch<N>(residual, of) &&
      (!has_residual2 ||
       (residual2.type == sum.type && can_fetch<N>(residual2, of))) &&
      (!has_factor ||
       (round_factored && factor.type == sum.type && can_fetch<N>(factor, of)));
}
#endif

template <int N, int V, int THREADS> // the most threads per threadgroup
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm(
    device const uchar* x [[buffer]],
    device const uchar* residual [[buffer, function_constant(has_residual)]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* bias [[buffer, function_constant(has_bias)]],
    device uchar* normalized [[buffer]],
    device uchar* sum [[buffer, function_constant(has_residual)]],
    constant const int* layouts [[buffer]],
    constant const int& rows [[buffer]],
    constant const int& length [[buffer]],
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    device const uchar* scale [[buffer, function_constant(has_scale)]],
    device const uchar* shift [[buffer, function_constant(has_shift)]],
    device const uchar* factor [[buffer, function_constant(has_factor)]],
    constant const float& number [[buffer]],
    constant const float& alpha [[buffer]],
    device const uchar* gate [[buffer, function_constant(has_gate)]],
    device const uchar* residual2 [[buffer, function_constant(has_residual2)]],
    device const uchar* post_weight
    [[buffer, function_constant(has_post_weight)]],
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
  RowOut out = row_out(normalized, normalized_flags, row, length);
  FetchedRow<N, V> x_row, r2, post, w_row, b, f;
  FetchedRow<N, V, true> r;
  RowOut s;
  x_row.fetch_all(in, threads, length);
  if (has_residual) {
    r.fetch_all(
        row_in(residual, residual_flags, layouts, row, length),
        threads,
        length);
    s = row_out(sum, sum_flags, row, length);
  }
  if (has_residual2) {
    r2.fetch_all(
        row_in(residual2, residual2_flags, layouts, row, length),
        threads,
        length);
  }
  if (has_post_weight) {
    post.fetch_all(
        row_in(post_weight, post_weight_flags, layouts, row, length),
        threads,
        length);
  }
  float sum_factor = 1.0f;
  if (factor_of_sum) {
    sum_factor = load(factor, float_type(factor_flags));
  }
  if (has_factor && !factor_of_sum) {
    f.fetch_all(
        row_in(factor, factor_flags, layouts, row, length), threads, length);
  }
  if (has_weight) {
    w_row.fetch_all(
        row_in(weight, weight_flags, layouts, row, length), threads, length);
  }
  if (has_bias) {
    b.fetch_all(
        row_in(bias, bias_flags, layouts, row, length), threads, length);
  }

  FetchedRow<N, V> z_row;
  if (has_gate) {
    z_row.fetch_all(
        row_in(gate, gate_flags, layouts, row, length), threads, length);
  }
  Modulation<N, V> modulation;
  if (has_scale) {
    modulation.scale.fetch_all(
        row_in(scale, scale_flags, layouts, row, length), threads, length);
  }
  if (has_shift) {
    modulation.shift.fetch_all(
        row_in(shift, shift_flags, layouts, row, length), threads, length);
  }

  HeldRow<N, V> held;
  Statistics of_x;
  if (norm_first) {
    of_x = read_row<N, V>(x_row, threads, length, eps, held);
  }
  float2 first = float2(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    float2 of_chunk = float2(0.0f);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float v[N];
      bool packed = false;
#ifdef __CUDACC__
      packed = has_residual && !norm_first &&
          sums_packed<N>(in, r.row, r2.row, f.row, s, of);
      if (packed) {
        uint4 bits = x_row.packed(k, of);
        if (has_factor) {
          bits = multiply_packed(bits, f.packed(k, of), s.type);
        }
        bits = add_packed(bits, r.packed(k, of), s.type);
        if (has_residual2) {
          bits = add_packed(bits, r2.packed(k, of), s.type);
        }
        store_bits<N>(s, of, bits);
        held.put_packed(k, s.type, bits, v);
      }
#endif
      if (!packed && (fetch_first || has_residual || gate_first)) {
        if (norm_first) {
          normalize_first<N, V>(of_x, post, weight_offset, in, k, of, held, v);
        } else {
          x_row.values(k, of, v);
        }
        if (gate_first) {
          gate_input<N, V>(z_row, k, of, in.type, v);
        }
        if ((has_factor && !factor_of_sum) || has_number) {
          float of_f[N];
          clear<N>(of_f);
          if (has_factor) {
            f.values(k, of, of_f);
          }
          multiply<N>(of_f, number, in.type, v);
        }
        if (has_residual) {
          float of_r[N];
          r.values(k, of, of_r);
          if (has_alpha) {
            for (int j = 0; j < N; ++j) {
              of_r[j] = of_r[j] * alpha;
            }
            round_step<N>(round_early, r.row.type, of_r);
          }
          int first_type = in.type == r.row.type ? in.type : kFloat32;
          add_residual<N>(of_r, first_type, v);
          if (has_residual2) {
            r2.values(k, of, of_r);
            add_residual<N>(of_r, s.type, v);
          }
          if (factor_of_sum) {
            for (int j = 0; j < N; ++j) {
              v[j] = v[j] * sum_factor;
            }
            round_vector<N>(s.type, v);
          }
          write_rounded<N>(s, of, v);
        }
        int held_type = has_residual ? s.type : in.type;
        held.put_vector(k, holds_floats() ? kFloat32 : held_type, v);
      } else if (!packed) {
        held.read_vector(in, k, of, v);
      }
      for (int j = 0; j < N; ++j) {
        of_chunk = add_first(of_chunk, v[j]);
      }
    }
    first += of_chunk;
  }
  if (has_residual) {
    in = as_input(s); // written by the thread that reads it
  }
  if (holds_floats()) {
    in.type = kFloat32;
  }
  Statistics stats = statistics<N, V>(first, in, threads, length, eps, held);

  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float y[N], w_of[N], b_of[N];
      if (gate_first && looped) {
        x_row.values(k, of, y);
        gate_input<N, V>(z_row, k, of, x_row.row.type, y);
      } else {
        held.get_vector(in, k, of, y);
      }
      if (has_weight) {
        w_row.values(k, of, w_of);
        add_offset<N>(weight_offset, w_of);
      }
      if (has_bias) {
        b.values(k, of, b_of);
      }
      normalize<N>(stats, out.type, y);
      for (int j = 0; j < N; ++j) {
        float n = has_weight && !has_bias ? y[j] * w_of[j] : y[j];
        y[j] = !has_bias ? n
            : has_weight ? fma(n, w_of[j], b_of[j])
                         : n + b_of[j];
      }
#ifdef __CUDACC__
      if ((has_scale || has_shift) &&
          modulation.is_packed(round_early, out, of)) {
        store_bits<N>(out, of, modulation.packed(k, of, out.type, y));
        continue;
      }
#endif
      if (has_scale || has_shift) {
        modulation.apply(k, of, round_early, out.type, y);
      }
      if (!gate_first && (has_gate || activation != kNoActivation)) {
        round_step<N>(round_early, out.type, y);
        if (has_gate) {
          float z[N];
          z_row.values(k, of, z);
          multiply_by_gate<N>(z, y);
        } else {
          activate<N>(round_early, out.type, y);
        }
      }
      write<N>(out, of, y);
    }
  }
}

#define INSTANTIATE_NORM(N, V, THREADS)                             \
  template [[host_name("norm_" #N "_" #V "_" #THREADS)]] [[kernel]] \
  decltype(norm<N, V, THREADS>) norm<N, V, THREADS>;

#ifdef __CUDACC__
FOR_FORWARD_ON_CUDA(INSTANTIATE_NORM)
#else
FOR_FORWARD_ON_METAL(INSTANTIATE_NORM)
#endif
