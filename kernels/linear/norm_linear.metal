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

#include "kernels/linear/normed_rows.h"
#include "kernels/linear/weights.h"

constant int linear_projections [[function_constant(70)]];
constant int linear_biases [[function_constant(71)]]; // one bit per projection
constant bool linear_gated [[function_constant(79)]];

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

struct Projected {
  device const uchar* weights;
  device const uchar* scales;
  device const uchar* zeros; // MLX's biases, one per group
  device const uchar* bias;
  device uchar* y;
  int size;
  bool has_bias;
};

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

// Stores x + residual of ROWS rows.
template <int P, int ROWS>
inline void write_sums(
    thread const NormedRow* rows,
    device uchar* sum,
    uint first_row,
    int count,
    thread RowThreads& threads,
    int length) {
  for (int chunk = 0; chunk < length; chunk += chunk_length<P, 1>()) {
    int i = element<P>(threads, chunk, 0);
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

// Takes the row's sums of P values starting at i, and multiplies them by the
// norm's weight.
template <int P>
inline void weigh(
    int i,
    int length,
    float shift,
    thread const float* w,
    thread float* in,
    thread float& first,
    thread float& square) {
  if (!linear_normed) {
    return;
  }
  for (int j = 0; j < P; ++j) {
    float v = in[j];
    if (center) {
      v = in_row(i + j, 1, length) ? v - shift : 0.0f;
      first += v;
    }
    square = fma(v, v, square);
    in[j] = has_weight ? v * w[j] : v;
  }
}

template <int P>
inline float sum_of(thread const float* v) {
  float total = 0.0f;
  for (int j = 0; j < P; ++j) {
    total += v[j];
  }
  return total;
}

// A dot product of which P more weights are there, unpacked.
template <int P>
inline float with_dot(
    thread const float* weights,
    thread const float* in,
    float total,
    Affine affine,
    float of_all) {
  float dot = 0.0f;
  for (int j = 0; j < P; ++j) {
    dot = fma(weights[j], in[j], dot);
  }
  float levels = float(1 << linear_bits);
  return linear_quantized
      ? fma(affine.scale, dot - total, fma(affine.bias, total / levels, of_all))
      : of_all + dot;
}

// Whether a block multiplies its weights by `row`: by one of its rows or, for
// LayerNorm, by the norm's weight or bias, which come after them.
inline bool is_multiplied(int row, int rows) {
  return row < rows || (center && (row == rows || has_bias));
}

template <int N, int P, int ROWS, int R, int V, int G>
[[kernel, max_total_threads_per_threadgroup(256)]] void norm_linear(
    device const uchar* x [[buffer(0)]],
    device const uchar* residual
    [[buffer(1), function_constant(linear_has_residual)]],
    device const uchar* norm_weight
    [[buffer(2), function_constant(has_weight)]],
    device const uchar* norm_bias [[buffer(3), function_constant(has_bias)]],
    device const uchar* w1 [[buffer(4)]],
    device const uchar* w2 [[buffer(5), function_constant(linear_has_2)]],
    device const uchar* w3 [[buffer(6), function_constant(linear_has_3)]],
    device const uchar* w4 [[buffer(7), function_constant(linear_has_4)]],
    device const uchar* scales1
    [[buffer(8), function_constant(linear_quantized)]],
    device const uchar* scales2
    [[buffer(9), function_constant(linear_packed_2)]],
    device const uchar* scales3
    [[buffer(10), function_constant(linear_packed_3)]],
    device const uchar* scales4
    [[buffer(11), function_constant(linear_packed_4)]],
    device const uchar* zeros1
    [[buffer(12), function_constant(linear_quantized)]],
    device const uchar* zeros2
    [[buffer(13), function_constant(linear_packed_2)]],
    device const uchar* zeros3
    [[buffer(14), function_constant(linear_packed_3)]],
    device const uchar* zeros4
    [[buffer(15), function_constant(linear_packed_4)]],
    device const uchar* bias1 [[buffer(16), function_constant(linear_bias_1)]],
    device const uchar* bias2 [[buffer(17), function_constant(linear_bias_2)]],
    device const uchar* bias3 [[buffer(18), function_constant(linear_bias_3)]],
    device const uchar* bias4 [[buffer(19), function_constant(linear_bias_4)]],
    device uchar* y1 [[buffer(20)]],
    device uchar* y2 [[buffer(21), function_constant(linear_out_2)]],
    device uchar* y3 [[buffer(22), function_constant(linear_has_3)]],
    device uchar* y4 [[buffer(23), function_constant(linear_has_4)]],
    device uchar* sum [[buffer(24), function_constant(linear_adds_first)]],
    constant const int* layouts [[buffer(25)]],
    constant const int* sizes [[buffer(26)]], // outputs, rows, length
    constant const float& eps [[buffer(27)]],
    constant const float& weight_offset [[buffer(28)]],
    uint2 group [[threadgroup_position_in_grid]],
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

  int outputs = linear_gated ? R / 2 : R; // per projection in a block
  // Arguments that function constants leave out must not be named. The weights
  // stand in for them and are not read.
  Projected of{
      w1,
      linear_quantized ? scales1 : w1,
      linear_quantized ? zeros1 : w1,
      linear_bias_1 ? bias1 : w1,
      y1,
      sizes[0],
      linear_bias_1};
  if (linear_out_2 && passes(block, of.size, outputs)) {
    of.weights = w2;
    of.scales = linear_quantized ? scales2 : w2;
    of.zeros = linear_quantized ? zeros2 : w2;
    of.bias = linear_bias_2 ? bias2 : w2;
    of.y = y2;
    of.size = sizes[1];
    of.has_bias = linear_bias_2;
    if (linear_has_3 && passes(block, of.size, outputs)) {
      of.weights = w3;
      of.scales = linear_quantized ? scales3 : w3;
      of.zeros = linear_quantized ? zeros3 : w3;
      of.bias = linear_bias_3 ? bias3 : w3;
      of.y = y3;
      of.size = sizes[2];
      of.has_bias = linear_bias_3;
      if (linear_has_4 && passes(block, of.size, outputs)) {
        of.weights = w4;
        of.scales = linear_quantized ? scales4 : w4;
        of.zeros = linear_quantized ? zeros4 : w4;
        of.bias = linear_bias_4 ? bias4 : w4;
        of.y = y4;
        of.size = sizes[3];
        of.has_bias = linear_bias_4;
      }
    }
  }
  if (passes(block, of.size, outputs)) { // for the whole threadgroup
    if (linear_adds_first && block == 0) {
      write_sums<P, ROWS>(rows, sum, first_row, count, threads, length);
    }
    return;
  }

  int type = float_type(linear_x_flags);
  int first_output = int(block) * outputs;
  // Packed rows are found by index, as all are of one length.
  int group_size = linear_quantized ? linear_group_size : 1;
  uint row_vectors = uint(length) / 16u;
  uint row_groups = uint(length) / uint(group_size);
  Projected other = of; // for the second half of the block's outputs
  if (linear_gated) {
    other.weights = w2;
    other.scales = linear_quantized ? scales2 : w2;
    other.zeros = linear_quantized ? zeros2 : w2;
    other.bias = linear_bias_2 ? bias2 : w2;
    other.has_bias = linear_bias_2;
  }
  uint row_of[R];
  float bias[R];
  for (int o = 0; o < R; ++o) {
    thread const Projected& from = o < R / 2 ? of : other;
    int j = min(first_output + o % outputs, of.size - 1);
    row_of[o] = uint(j);
    bias[o] =
        from.has_bias ? load(from.bias + long(j) * size_of(type), type) : 0.0f;
  }

  float shift[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    shift[r] = center ? shift_of(rows[r], threads.lane, length, partial) : 0.0f;
  }
  RowIn weight_row, bias_row;
  if (has_weight) {
    assign(
        weight_row,
        RowIn{
            norm_weight,
            float_type(weight_flags),
            bool(weight_flags & kVectors),
            1});
  }
  if (has_bias) {
    assign(
        bias_row,
        RowIn{
            norm_bias, float_type(bias_flags), bool(bias_flags & kVectors), 1});
  }

  NormedRow all_rows; // from the first on
  assign(all_rows.x, RowIn{x, type, bool(linear_x_flags & kVectors), 1});
  if (linear_adds_first) {
    bool vectors = linear_residual_flags & kVectors;
    assign(all_rows.residual, RowIn{residual, type, vectors, 1});
  }
  uint pieces = uint(length) / P; // of a row

  // Dot products with the rows and, for LayerNorm, with the norm's weight and
  // bias. Those of packed weights are divided by the number of values of q.
  float levels = float(1 << linear_bits);
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
      for (int k = 0; k < V; ++k) {
        int i = element<N>(threads, chunk, k);
        for (int o = 0; o < R; ++o) {
          thread const Projected& from = o < R / 2 ? of : other;
          if (N < 16) {
            fetched[k * R + o] =
                fetch_dense<N>(from.weights, row_of[o], i, length);
          } else if (in_row(i, N, length)) {
            fetched[k * R + o] = fetch_packed(
                from.weights, row_of[o] * row_vectors + uint(i) / 16u);
            affine[k * R + o] = load_affine(
                from.scales,
                from.zeros,
                type,
                row_of[o] * row_groups + uint(i) / uint(group_size));
          } else {
            fetched[k * R + o] = uint4(0, 0, 0, 0);
            affine[k * R + o] = Affine{0.0f, 0.0f};
          }
        }
      }
      for (int k = 0; k < V; ++k) {
        for (int h = 0; h < N / P; ++h) {
          int i = element<N>(threads, chunk, k) + h * P;
          float w[P];
          if (has_weight) {
            read_at<P>(weight_row, uint(i) / P, length - i, w);
            add_offset<P>(weight_offset, w);
          }
          uint at = first_row * pieces + uint(i) / P;
          uint last = at + uint(count - 1) * pieces;
          for (int begin = 0; begin < ROWS + 2; begin += G) {
            float in[G * P];
            float total[G];
            for (int g = 0; g < G; ++g) {
              int r = begin + g;
              if (r < ROWS) {
                if (linear_indexed) {
                  read_normed_at<P>(all_rows, at, length - i, in + g * P);
                  at = min(at + pieces, last);
                } else {
                  read_normed<P>(rows[r], i, length, in + g * P);
                }
                weigh<P>(
                    i, length, shift[r], w, in + g * P, first[r], square[r]);
              } else if (r == ROWS) {
                for (int j = 0; j < P; ++j) {
                  in[g * P + j] = has_weight ? w[j] : 1.0f;
                }
              } else if (has_bias) {
                read_at<P>(bias_row, uint(i) / P, length - i, in + g * P);
              }
              if (is_multiplied(r, ROWS)) {
                total[g] = sum_of<P>(in + g * P);
              }
            }
            for (int o = 0; o < R; ++o) {
              float v[P];
              unpack_weights<N, P>(fetched[k * R + o], type, h * P, v);
              for (int g = 0; g < G; ++g) {
                int at_dot = (begin + g) * R + o;
                if (is_multiplied(begin + g, ROWS)) {
                  dots[at_dot] = with_dot<P>(
                      v, in + g * P, total[g], affine[k * R + o], dots[at_dot]);
                }
              }
            }
          }
        }
      }
    }
    for (int r = 0; r < ROWS + 2; ++r) {
      if (r < ROWS || (center && (r == ROWS || has_bias))) {
        for (int q = 0; q < R / 4; ++q) {
          float4 sums = threads.reduce(take(dots + r * R + 4 * q));
          put(dots + r * R + 4 * q, linear_quantized ? sums * levels : sums);
        }
      }
    }
    for (int q = 0; q < (ROWS + 3) / 4; ++q) {
      if (linear_normed) {
        put(square + 4 * q, threads.reduce(take(square + 4 * q)));
      }
      if (center) {
        put(first + 4 * q, threads.reduce(take(first + 4 * q)));
      }
    }
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
        store(of.y + at * size_of(type), type, out);
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
INSTANTIATE_NORM_LINEAR(16, 8, 1, 8, 1, 3)
INSTANTIATE_NORM_LINEAR(16, 8, 2, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(16, 8, 4, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(16, 8, 8, 4, 1, 1)
INSTANTIATE_NORM_LINEAR(16, 8, 16, 4, 1, 1)
#endif
