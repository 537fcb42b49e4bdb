// Copyright (c) 2026 mlx_norms contributors
//
// The products of a block's weights with some rows, and the sums over those.

#pragma once

#include "kernels/linear/normed_rows.h"
#include "kernels/linear/projected.h"

// What weights are multiplied by: some rows and, for LayerNorm, the norm's
// weight and bias.
struct Multiplied {
  NormedRow all; // x's rows, from its first on
  RowIn weight;
  RowIn bias;
  float weight_offset;
  uint first;
  int count; // the last of these stands in for missing ones
  int length;
};

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

// Adds the P elements from i on, of which the weights are those from `begin` on
// in their vectors: to dot products with the rows and, for LayerNorm, with the
// norm's weight and bias, those of packed weights divided by the number of
// values of q; and to the sums over each row, less its shift, and of squares.
template <int N, int P, int ROWS, int R, int G>
inline void add_products(
    thread const Multiplied& by,
    thread const NormedRow* rows,
    thread const float* shift,
    int i,
    int begin,
    thread const uint4* bits,
    thread const Affine* affine,
    int type,
    thread float* dots,
    thread float* first,
    thread float* square) {
  int length = by.length;
  float w[P];
  if (has_weight) {
    read_at<P>(by.weight, uint(i) / P, length - i, w);
    add_offset<P>(by.weight_offset, w);
  }
  uint pieces = uint(length) / P; // of a row
  uint at = by.first * pieces + uint(i) / P;
  uint last = at + uint(by.count - 1) * pieces;
  for (int row = 0; row < ROWS + 2; row += G) {
    float in[G * P];
    float total[G];
    for (int g = 0; g < G; ++g) {
      int r = row + g;
      thread float* v = in + g * P;
      if (r < ROWS) {
        if (linear_indexed) {
          read_normed_at<P>(by.all, at, length - i, v);
          at = min(at + pieces, last);
        } else {
          read_normed<P>(rows[r], i, length, v);
        }
        weigh<P>(i, length, shift[r], w, v, first[r], square[r]);
      } else if (r == ROWS) {
        for (int j = 0; j < P; ++j) {
          v[j] = has_weight ? w[j] : 1.0f;
        }
      } else if (has_bias) {
        read_at<P>(by.bias, uint(i) / P, length - i, v);
      }
      if (is_multiplied(r, ROWS)) {
        total[g] = sum_of<P>(v);
      }
    }
    for (int o = 0; o < R; ++o) {
      float v[P];
      unpack_weights<N, P>(bits[o], type, begin, v);
      for (int g = 0; g < G; ++g) {
        int dot = (row + g) * R + o;
        if (is_multiplied(row + g, ROWS)) {
          dots[dot] =
              with_dot<P>(v, in + g * P, total[g], affine[o], dots[dot]);
        }
      }
    }
  }
}

// Over the block's threads, of which all get the sums.
template <int ROWS, int R>
inline void reduce_sums(
    thread RowThreads& threads,
    thread float* dots,
    thread float* first,
    thread float* square) {
  float levels = float(1 << linear_bits);
  for (int r = 0; r < ROWS + 2; ++r) {
    if (is_multiplied(r, ROWS)) {
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
}
