// Copyright (c) 2026 mlx_norms contributors
//
// Rows in fours of elements, each of which is one load if all rows are aligned.

#pragma once

#include "kernels/ladders/layer_norm/ladder.h"

constant bool rung_aligned [[function_constant]]; // so no row has a tail

// How the fours of unaligned rows are loaded and stored.
enum Unaligned {
  kEach = 0,  // each element by itself
  kPacked = 1 // as packed vectors, and each element of the tail by itself
};

inline float4 aligned_four(device const float* p) {
  return *(device const float4*)p;
}
inline float4 aligned_four(device const half* p) {
  return float4(*(device const half4*)p);
}
inline float4 packed_four(device const float* p) {
  return float4(*(device const packed_float4*)p);
}
inline float4 packed_four(device const half* p) {
  return float4(half4(*(device const packed_half4*)p));
}

inline void put_aligned(device float* p, float4 v) {
  *(device float4*)p = v;
}
inline void put_aligned(device half* p, float4 v) {
  *(device half4*)p = half4(v);
}
inline void put_packed(device float* p, float4 v) {
  *(device packed_float4*)p = packed_float4(v);
}
inline void put_packed(device half* p, float4 v) {
  *(device packed_half4*)p = packed_half4(half4(v));
}

// Four elements starting at i; zeros past the row's end.
template <int unaligned, typename T>
inline void read_four(device const T* row, int i, int length, thread float* v) {
  if (rung_aligned) {
    put(v, aligned_four(row + i));
  } else if (unaligned == kPacked && i + 4 <= length) {
    put(v, packed_four(row + i));
  } else {
    for (int j = 0; j < 4; ++j) {
      v[j] = i + j < length ? float(row[i + j]) : 0.0f;
    }
  }
}

template <int unaligned, typename T>
inline void
write_four(device T* row, int i, int length, thread const float* v) {
  if (rung_aligned) {
    put_aligned(row + i, take(v));
  } else if (unaligned == kPacked && i + 4 <= length) {
    put_packed(row + i, take(v));
  } else {
    for (int j = 0; j < 4; ++j) {
      if (i + j < length) {
        row[i + j] = T(v[j]);
      }
    }
  }
}

// Stores the normalized elements n that start at i, with their weights and
// biases.
template <int unaligned, typename T>
inline void write_scaled(
    device T* row,
    device const T* weight,
    device const T* bias,
    int i,
    int length,
    thread float* n) {
  float of_row[4];
  if (rung_has_weight) {
    read_four<unaligned>(weight, i, length, of_row);
    for (int j = 0; j < 4; ++j) {
      n[j] *= of_row[j];
    }
  }
  if (rung_has_bias) {
    read_four<unaligned>(bias, i, length, of_row);
    for (int j = 0; j < 4; ++j) {
      n[j] += of_row[j];
    }
  }
  write_four<unaligned>(row, i, length, n);
}

inline float sum_of_four(thread const float* v) {
  return v[0] + v[1] + v[2] + v[3];
}

// The sum of squared deviations from the mean, of the elements in the row.
inline float
squares_of_four(thread const float* v, float mean, int i, int length) {
  float squares = 0.0f;
  for (int j = 0; j < 4; ++j) {
    float d = v[j] - mean;
    squares += rung_aligned || i + j < length ? d * d : 0.0f;
  }
  return squares;
}
