// Copyright © 2026 mlx_norms contributors
//
// Arguments that function constants leave out, and which are named. REPAIRED gives the clean twin.

#include <metal_stdlib>
using namespace metal;

constant bool weighted [[function_constant(0)]];
constant int terms [[function_constant(1)]];
constant bool two_terms = terms > 1;

struct Row {
  device const float* x;
  device const float* weight;
};

// The pointer is copied, and never used.
kernel void copied_into_struct(
    device const float* x [[buffer(0)]],
    device const float* weight [[buffer(1), function_constant(weighted)]],
    device float* y [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
#ifdef REPAIRED
  Row row{x, weighted ? weight : x};
#else
  Row row{x, weight}; // FAULT: absent argument: weight
#endif
  y[i] = weighted ? row.x[i] * row.weight[i] : row.x[i];
}

inline float
scaled(float v, device const float* weight, uint i) {
  return weighted ? v * weight[i] : v;
}

kernel void passed_to_function(
    device const float* x [[buffer(0)]],
    device const float* weight [[buffer(1), function_constant(weighted)]],
    device float* y [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
#ifdef REPAIRED
  y[i] = scaled(x[i], weighted ? weight : x, i);
#else
  y[i] = scaled(x[i], weight, i); // FAULT: absent argument: weight
#endif
}

// Whether it is reached is up to the grid, of which the compiler knows nothing.
kernel void behind_a_position(
    device const float* x [[buffer(0)]],
    device const float* addend [[buffer(1), function_constant(two_terms)]],
    device float* y [[buffer(2)]],
    uint2 at [[thread_position_in_grid]]) {
#ifdef REPAIRED
  if (two_terms && at.y > 0) {
#else
  if (at.y > 0) {
#endif
    y[at.x] = x[at.x] + addend[at.x]; // FAULT: absent argument: addend
    return;
  }
  y[at.x] = x[at.x];
}
