// Copyright (c) 2026 mlx_norms contributors
//
// A norm and up to four projections of its output, or one projection of rows as
// they are, for few rows. A row's scale is a scalar, so every block of outputs
// takes the row's sums along with its dot products, and no normalized row is
// formed:
//
//   rms:    y = rstd * sum(W w x) + b
//   layer:  y = rstd * (sum(W w d) - mean(d) * sum(W w)) + sum(W n) + b
//
// with the norm's weight w and bias n, and d = x - shift. If the shift turns
// out to be far from the mean, everything is summed again with the mean as
// shift. A block computes R outputs of ROWS rows. Its threads load weights in
// vectors of N, V vectors of each weight row at once, and unpack P weights at a
// time. They hold G of the rows, with LayerNorm's two, at once: on CUDA all, on
// Metal, where registers are fewer, one. Their sums have the same order.

#include "kernels/linear/products.h"

constant int linear_projections [[function_constant]];
constant int linear_biases [[function_constant]]; // one bit per projection
constant bool linear_gated [[function_constant]];

constant bool linear_has_2 = linear_projections > 1;
constant bool linear_has_3 = linear_projections > 2;
constant bool linear_has_4 = linear_projections > 3;
constant bool linear_packed_2 = linear_quantized && linear_has_2;
constant bool linear_packed_3 = linear_quantized && linear_has_3;
constant bool linear_packed_4 = linear_quantized && linear_has_4;
constant bool linear_bias_1 = (linear_biases & 1) != 0;
constant bool linear_bias_2 = (linear_biases & 2) != 0;
constant bool linear_bias_3 = (linear_biases & 4) != 0;
constant bool linear_bias_4 = (linear_biases & 8) != 0;
constant bool linear_out_2 = linear_has_2 && !linear_gated;

// Whether one more threadgroup stores the sums, on CUDA, where the others have
// no registers for that. Otherwise each stores a piece.
#ifdef __CUDACC__
constant constexpr bool kSumsApart = true;
#else
constant constexpr bool kSumsApart = false;
#endif

// Arguments that function constants leave out must not be named. The weights
// stand in for them and are not read.
#define PROJECTED(W, SCALES, ZEROS, BIAS, SIZE, HAS_BIAS)           \
  Projected {                                                       \
    W, linear_quantized ? SCALES : W, linear_quantized ? ZEROS : W, \
        HAS_BIAS ? BIAS : W, SIZE, HAS_BIAS                         \
  }

inline uint blocks_of(int size, int outputs) {
  return uint((size + outputs - 1) / outputs);
}

// Whether a block belongs to a later projection. If so, `block` is lowered by
// the number of this projection's blocks.
inline bool passes(thread uint& block, int size, int outputs) {
  uint blocks = blocks_of(size, outputs);
  bool later = block >= blocks;
  block -= later ? blocks : 0u;
  return later;
}

inline float silu(float v) {
  return v / (1.0f + precise::exp(-v));
}

// Stores a threadgroup's pieces of x + residual of the rows: every `groups`-th
// chunk from that of its own index on.
template <int P, int ROWS>
inline void write_sums(
    thread const NormedRow* rows,
    device uchar* sum,
    uint first_row,
    int count,
    thread RowThreads& threads,
    uint group,
    uint groups,
    int length) {
  int chunk_of = chunk_length<P, 1>();
  uint chunks = uint((length + chunk_of - 1) / chunk_of);
  for (uint piece = group; piece < chunks; piece += groups) {
    int i = element<P>(threads, int(piece) * chunk_of, 0);
    for (int r = 0; r < ROWS; ++r) {
      if (r < count) {
        float v[P];
        read_normed<P>(rows[r], i, length, v);
        write_rounded<P>(
            row_out(sum, linear_sum_flags, first_row + r, length),
            span_at<P>(i, length),
            v);
      }
    }
  }
}

template <int N, int P, int ROWS, int R, int V, int G>
[[kernel, max_total_threads_per_threadgroup(256)]] void norm_linear(
    device const uchar* x [[buffer]],
    device const uchar* residual
    [[buffer, function_constant(linear_has_residual)]],
    device const uchar* norm_weight [[buffer, function_constant(has_weight)]],
    device const uchar* norm_bias [[buffer, function_constant(has_bias)]],
    device const uchar* w1 [[buffer]],
    device const uchar* w2 [[buffer, function_constant(linear_has_2)]],
    device const uchar* w3 [[buffer, function_constant(linear_has_3)]],
    device const uchar* w4 [[buffer, function_constant(linear_has_4)]],
    device const uchar* scales1 [[buffer, function_constant(linear_quantized)]],
    device const uchar* scales2 [[buffer, function_constant(linear_packed_2)]],
    device const uchar* scales3 [[buffer, function_constant(linear_packed_3)]],
    device const uchar* scales4 [[buffer, function_constant(linear_packed_4)]],
    device const uchar* zeros1 [[buffer, function_constant(linear_quantized)]],
    device const uchar* zeros2 [[buffer, function_constant(linear_packed_2)]],
    device const uchar* zeros3 [[buffer, function_constant(linear_packed_3)]],
    device const uchar* zeros4 [[buffer, function_constant(linear_packed_4)]],
    device const uchar* bias1 [[buffer, function_constant(linear_bias_1)]],
    device const uchar* bias2 [[buffer, function_constant(linear_bias_2)]],
    device const uchar* bias3 [[buffer, function_constant(linear_bias_3)]],
    device const uchar* bias4 [[buffer, function_constant(linear_bias_4)]],
    device uchar* y1 [[buffer]],
    device uchar* y2 [[buffer, function_constant(linear_out_2)]],
    device uchar* y3 [[buffer, function_constant(linear_has_3)]],
    device uchar* y4 [[buffer, function_constant(linear_has_4)]],
    device uchar* sum [[buffer, function_constant(linear_adds_first)]],
    constant const int* layouts [[buffer]],
    constant const int* sizes [[buffer]], // outputs, rows, length
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[2 * kMaxSimds];
  RowThreads threads = make_row_threads(simd, lane, partial);
  uint block = group.x; // uniform over the threadgroup, as are its pointers
  uint first_row = group.y * ROWS;
  int count = min(sizes[4] - int(first_row), ROWS);
  int length = sizes[5];

  NormedRow rows[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    uint row = first_row + uint(min(r, count - 1));
    assign(rows[r].x, row_in(x, linear_x_flags, layouts, row, length));
    if (linear_adds_first) {
      assign(
          rows[r].residual,
          row_in(residual, linear_residual_flags, layouts, row, length));
    }
  }

  if (linear_adds_first && !kSumsApart) {
    write_sums<P, ROWS>(
        rows, sum, first_row, count, threads, group.x, groups.x, length);
  }

  int outputs = linear_gated ? R / 2 : R; // per projection in a block
  Projected of = PROJECTED(w1, scales1, zeros1, bias1, sizes[0], linear_bias_1);
  device uchar* y_of = y1;
  if (linear_out_2 && passes(block, of.size, outputs)) {
    assign(of, PROJECTED(w2, scales2, zeros2, bias2, sizes[1], linear_bias_2));
    y_of = y2;
    if (linear_has_3 && passes(block, of.size, outputs)) {
      assign(
          of, PROJECTED(w3, scales3, zeros3, bias3, sizes[2], linear_bias_3));
      y_of = y3;
      if (linear_has_4 && passes(block, of.size, outputs)) {
        assign(
            of, PROJECTED(w4, scales4, zeros4, bias4, sizes[3], linear_bias_4));
        y_of = y4;
      }
    }
  }
  if (kSumsApart && passes(block, of.size, outputs)) { // the whole threadgroup
    if (linear_adds_first && block == 0) {
      write_sums<P, ROWS>(rows, sum, first_row, count, threads, 0, 1, length);
    }
    return;
  }
  if (linear_projections == 0) {
    return; // all are empty
  }
  Projected other = of; // for the second half of the block's outputs
  if (linear_gated) {
    assign(
        other, PROJECTED(w2, scales2, zeros2, bias2, sizes[1], linear_bias_2));
  }
  int type = float_type(linear_x_flags);
  int first_output = int(block) * outputs;
  uint row_of[R];
  float bias[R];
  for (int o = 0; o < R; ++o) {
    thread const Projected& from = o < R / 2 ? of : other;
    int j = min(first_output + o % outputs, from.size - 1);
    row_of[o] = uint(j);
    bias[o] =
        from.biased ? load(from.bias + long(j) * size_of(type), type) : 0.0f;
  }

  float shift[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    shift[r] = center ? shift_of(rows[r], threads.lane, length, partial) : 0.0f;
  }
  Multiplied by;
  by.weight_offset = weight_offset;
  by.first = first_row;
  by.count = count;
  by.length = length;
  if (has_weight) {
    assign(by.weight, whole_array(norm_weight, weight_flags));
  }
  if (has_bias) {
    assign(by.bias, whole_array(norm_bias, bias_flags));
  }
  assign(by.all.x, whole_array(x, linear_x_flags));
  if (linear_adds_first) {
    assign(by.all.residual, whole_array(residual, linear_residual_flags));
  }

  float dots[(ROWS + 2) * R];
  float first[(ROWS + 3) / 4 * 4], square[(ROWS + 3) / 4 * 4];
  bool again = true; // a constant bound would copy the loop, which is slower
  for (int pass = 0; again; ++pass) {
    for (int k = 0; k < (ROWS + 2) * R; ++k) {
      dots[k] = 0.0f;
    }
    for (int k = 0; k < (ROWS + 3) / 4 * 4; ++k) {
      first[k] = square[k] = 0.0f;
    }
    for (int chunk = 0; chunk < length; chunk += chunk_length<N, V>()) {
      uint4 fetched[V * R];
      Affine affine[V * R];
      fetch_weights<N, R, V>(
          of, other, row_of, threads, chunk, length, type, fetched, affine);
      for (int k = 0; k < V; ++k) {
        for (int h = 0; h < N / P; ++h) {
          add_products<N, P, ROWS, R, G>(
              by,
              rows,
              shift,
              element<N>(threads, chunk, k) + h * P,
              h * P,
              fetched + k * R,
              affine + k * R,
              type,
              dots,
              first,
              square);
        }
      }
    }
    reduce_sums<ROWS, R>(threads, dots, first, square);
    // All of the block's threads take the same branch: they have the same sums.
    again = false;
    for (int r = 0; r < ROWS; ++r) {
      RowScale scale = scale_of(first[r], square[r], length);
      if (center && pass == 0 && scale.shift_is_far()) {
        shift[r] += scale.mean;
        again = true;
      }
    }
  }

  if (threads.simd != 0) {
    return;
  }
  for (int r = 0; r < ROWS; ++r) {
    RowScale scale = scale_of(first[r], square[r], length);
    float rstd = linear_normed ? scale.inverse_root(eps) : 1.0f;
    float y[R];
    for (int o = 0; o < R; ++o) {
      float dot = dots[r * R + o];
      if (center) {
        dot -= scale.mean * dots[ROWS * R + o];
      }
      y[o] = rstd * dot;
      if (center && has_bias) {
        y[o] += dots[(ROWS + 1) * R + o];
      }
      y[o] += bias[o];
    }
    for (int o = 0; o < R; ++o) {
      int j = first_output + o;
      if (r < count && o < outputs && j < of.size && threads.lane == o) {
        long at = long(first_row + r) * of.size + j;
        float out = linear_gated ? silu(y[o]) * y[(o + R / 2) % R] : y[o];
        if (linear_adds_last) {
          RowIn row = row_in(
              residual, linear_residual_flags, layouts, first_row + r, of.size);
          float4 rounded = round_to(float4(out, out, out, out), type);
          out = rounded.x + load_element(row, j);
        }
        store(y_of + at * size_of(type), type, out);
      }
    }
  }
}

#define INSTANTIATE_NORM_LINEAR(N, P, ROWS, R, V, G)             \
  template [[host_name("norm_linear_" #N "_" #ROWS)]] [[kernel]] \
  decltype(norm_linear<N, P, ROWS, R, V, G>) norm_linear<N, P, ROWS, R, V, G>;

#ifdef __CUDACC__
INSTANTIATE_NORM_LINEAR(4, 4, 1, 4, 4, 3)
INSTANTIATE_NORM_LINEAR(4, 4, 4, 4, 1, 6)
INSTANTIATE_NORM_LINEAR(8, 8, 1, 4, 4, 3)
INSTANTIATE_NORM_LINEAR(8, 8, 2, 4, 2, 4)
INSTANTIATE_NORM_LINEAR(8, 8, 4, 4, 1, 6)
INSTANTIATE_NORM_LINEAR(8, 8, 8, 4, 1, 10)
INSTANTIATE_NORM_LINEAR(16, 8, 1, 8, 1, 3)
INSTANTIATE_NORM_LINEAR(16, 8, 2, 4, 2, 4)
INSTANTIATE_NORM_LINEAR(16, 8, 4, 4, 1, 6)
INSTANTIATE_NORM_LINEAR(16, 8, 8, 4, 1, 10)
#else
INSTANTIATE_NORM_LINEAR(4, 4, 1, 4, 1, 3)
INSTANTIATE_NORM_LINEAR(4, 4, 4, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(8, 8, 1, 4, 1, 3)
INSTANTIATE_NORM_LINEAR(8, 8, 2, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(8, 8, 4, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(8, 8, 8, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(16, 8, 1, 4, 1, 3)
INSTANTIATE_NORM_LINEAR(16, 8, 2, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(16, 8, 4, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(16, 8, 8, 4, 1, 1)
#endif
