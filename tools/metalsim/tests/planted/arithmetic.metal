// Copyright © 2026 mlx_norms contributors
//
// Integer arithmetic without a defined result. REPAIRED gives the clean twin.

#include <metal_stdlib>
using namespace metal;

kernel void empty_part(
    device const uint* x [[buffer(0)]],
    device uint* y [[buffer(1)]],
    device const uint* parts [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
#ifdef REPAIRED
  y[i] = parts[i] ? x[i] / parts[i] : 0;
#else
  y[i] = x[i] / parts[i]; // FAULT: division by zero
#endif
}
