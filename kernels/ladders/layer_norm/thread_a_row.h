// Copyright (c) 2026 mlx_norms contributors
//
// A row that one thread normalizes, element by element.

#pragma once

#include "kernels/ladders/layer_norm/ladder.h"

inline void normalize_row(
    device const float* x,
    device const float* weight,
    device const float* bias,
    device float* y,
    int length,
    float eps) {
  float sum = 0.0f;
  for (int i = 0; i < length; ++i) {
    sum += x[i];
  }
  float mean = sum / float(length);
  float squares = 0.0f;
  for (int i = 0; i < length; ++i) {
    float d = x[i] - mean;
    squares += d * d;
  }
  float rstd = rsqrt(squares / float(length) + eps);
  for (int i = 0; i < length; ++i) {
    y[i] = scaled((x[i] - mean) * rstd, weight, bias, i);
  }
}
