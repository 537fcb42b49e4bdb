// Copyright (c) 2026 mlx_norms contributors
//
// The dtypes of arrays. Kernels compute in float32; function constants give the
// dtypes that they load and store. bfloat16 is converted bitwise, so that
// results do not depend on the compiler.

#pragma once

#include <metal_stdlib>

using namespace metal;

enum FloatType { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

inline int size_of(int type) {
  return type == kFloat32 ? 4 : 2;
}

// Tests the bits: a compiler may assume that no float is NaN.
inline bool is_nan(float v) {
  return (as_type<uint>(v) & 0x7fffffffu) > 0x7f800000u;
}

inline float bfloat_to_float(ushort bits) {
  return as_type<float>(uint(bits) << 16);
}

// Rounds to nearest, ties to even.
inline ushort float_to_bfloat(float v) {
#ifdef __CUDACC__
  return bfloat_bits(v); // one instruction; see kernels/to_cuda/prelude.h
#else
  uint bits = as_type<uint>(v);
  uint rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return ushort((is_nan(v) ? bits | 0x00400000u : rounded) >> 16);
#endif
}

inline uint floats_to_bfloats(float low, float high) {
#ifdef __CUDACC__
  return bfloat_bits(low, high);
#else
  return float_to_bfloat(low) | uint(float_to_bfloat(high)) << 16;
#endif
}

inline float load(device const uchar* p, int type) {
  if (type == kFloat32) {
    return *(device const float*)p;
  }
  return type == kFloat16 ? float(*(device const half*)p)
                          : bfloat_to_float(*(device const ushort*)p);
}

inline void store(device uchar* p, int type, float v) {
  if (type == kFloat32) {
    *(device float*)p = v;
  } else if (type == kFloat16) {
    *(device half*)p = half(v);
  } else {
    *(device ushort*)p = float_to_bfloat(v);
  }
}

// Converts four 16-bit values to float.
inline float4 widen(uint2 bits, int type) {
  if (type == kFloat16) {
    return float4(as_type<half4>(bits));
  }
  uint4 wide = uint4(bits.x << 16, bits.x, bits.y << 16, bits.y);
  return as_type<float4>(wide & 0xffff0000u);
}

inline uint2 narrow(float4 v, int type) {
  if (type == kFloat16) {
    return as_type<uint2>(half4(v));
  }
  return uint2(floats_to_bfloats(v.x, v.y), floats_to_bfloats(v.z, v.w));
}

inline float4 round_to(float4 v, int type) {
  return type == kFloat32 ? v : widen(narrow(v, type), type);
}

inline void put(thread float* to, float4 v) {
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}

inline float4 take(thread const float* from) {
  return float4(from[0], from[1], from[2], from[3]);
}

// The values in 16 bytes: 4 of float32 or 8 of 16 bits.
template <int N>
inline void unpack(uint4 bits, int type, thread float* v) {
  if (N == 4) {
    put(v, as_type<float4>(bits));
  } else {
    put(v, widen(bits.xy, type));
    put(v + 4, widen(bits.zw, type));
  }
}

// Loads N values, at most 16 bytes per access, for which p is aligned.
template <int N>
inline void load_vector(device const uchar* p, int type, thread float* v) {
  if (type == kFloat32) {
    for (int k = 0; k < N / 4; ++k) {
      put(v + 4 * k, ((device const float4*)p)[k]);
    }
  } else if (N == 8) {
    unpack<8>(*(device const uint4*)p, type, v);
  } else {
    put(v, widen(*(device const uint2*)p, type));
  }
}

// Rounds eight values to 16 bits each.
inline uint4 pack(thread const float* v, int type) {
  return uint4(narrow(take(v), type), narrow(take(v + 4), type));
}

template <int N>
inline void round_vector(int type, thread float* v) {
  for (int k = 0; k < N / 4; ++k) {
    put(v + 4 * k, round_to(take(v + 4 * k), type));
  }
}

template <int N>
inline void store_vector(device uchar* p, int type, thread const float* v) {
  if (type == kFloat32) {
    for (int k = 0; k < N / 4; ++k) {
      ((device float4*)p)[k] = take(v + 4 * k);
    }
  } else if (N == 8) {
    *(device uint4*)p = pack(v, type);
  } else {
    *(device uint2*)p = narrow(take(v), type);
  }
}
