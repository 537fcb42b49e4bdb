// Copyright (c) 2026 mlx_norms contributors
//
// The dtypes of arrays. Kernels compute in float32; function constants give the
// dtypes that they load and store. bfloat16 is converted bitwise, so that
// results do not depend on the compiler, or by Metal's own conversions if
// MLX_NORMS_NATIVE_BFLOAT is defined and the compiler has them.

#pragma once

#include <metal_stdlib>

using namespace metal;

#ifndef __HAVE_BFLOAT__
#undef MLX_NORMS_NATIVE_BFLOAT
#endif

enum FloatType {
  kFloat32 = 0,
  kFloat16 = 1,
  kBFloat16 = 2,
  kRoundedBFloat16 = 3 // to store values that are bfloat16's already, on Metal
};

inline int size_of(int type) {
  return type == kFloat32 ? 4 : 2;
}

// These test the bits: a compiler may assume that no float is NaN or inf.
inline bool is_nan(float v) {
  return (as_type<uint>(v) & 0x7fffffffu) > 0x7f800000u;
}

inline bool is_finite(float v) {
  return (as_type<uint>(v) & 0x7f800000u) != 0x7f800000u;
}

inline float bfloat_to_float(ushort bits) {
#ifdef MLX_NORMS_NATIVE_BFLOAT
  return float(as_type<bfloat>(bits));
#else
  return as_type<float>(uint(bits) << 16);
#endif
}

#ifdef __CUDACC__
// One instruction; see kernels/to_cuda/prelude.h.
inline ushort float_to_bfloat(float v) {
  return bfloat_bits(v);
}

inline uint floats_to_bfloats(float low, float high) {
  return bfloat_bits(low, high);
}
#else
inline uint join_high_halves(uint low, uint high) {
  return low >> 16 | (high & 0xffff0000u);
}

#ifdef MLX_NORMS_NATIVE_BFLOAT
inline ushort float_to_bfloat(float v) {
  return as_type<ushort>(bfloat(v));
}

inline uint floats_to_bfloats(float low, float high) {
  return as_type<uint>(bfloat2(bfloat(low), bfloat(high)));
}

inline float4 round_to_bfloat(float4 v) {
  return float4(bfloat4(v));
}
#else
// Rounds to nearest, ties to even, in the high half of the bits; what is in the
// low one is left over. NaN is replaced, as the sum would make it inf or zero:
// by one instruction where is_nan() takes two, as MLX and the build compile
// without fast math.
inline uint round_high_half(float v) {
  uint bits = as_type<uint>(v);
  uint tie_to_even = (bits & 0x10000u) != 0 ? 0x8000u : 0x7fffu;
  return (v != v ? 0x7fc00000u : bits) + tie_to_even;
}

inline ushort float_to_bfloat(float v) {
  return ushort(round_high_half(v) >> 16);
}

inline uint floats_to_bfloats(float low, float high) {
  return join_high_halves(round_high_half(low), round_high_half(high));
}

inline float4 round_to_bfloat(float4 v) {
  uint4 rounded = uint4(
      round_high_half(v.x),
      round_high_half(v.y),
      round_high_half(v.z),
      round_high_half(v.w));
  return as_type<float4>(rounded & 0xffff0000u);
}
#endif
#endif

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
#ifndef __CUDACC__
  } else if (type == kRoundedBFloat16) {
    *(device ushort*)p = ushort(as_type<uint>(v) >> 16);
#endif
  } else {
    *(device ushort*)p = float_to_bfloat(v);
  }
}

// Converts four 16-bit values to float.
inline float4 widen(uint2 bits, int type) {
  if (type == kFloat16) {
    return float4(as_type<half4>(bits));
  }
#ifdef MLX_NORMS_NATIVE_BFLOAT
  return float4(as_type<bfloat4>(bits));
#else
  uint4 wide = uint4(bits.x << 16, bits.x, bits.y << 16, bits.y);
  return as_type<float4>(wide & 0xffff0000u);
#endif
}

inline uint2 narrow(float4 v, int type) {
  if (type == kFloat16) {
    return as_type<uint2>(half4(v));
  }
#ifndef __CUDACC__
  if (type == kRoundedBFloat16) {
    uint4 bits = as_type<uint4>(v);
    return uint2(
        join_high_halves(bits.x, bits.y), join_high_halves(bits.z, bits.w));
  }
#endif
  return uint2(floats_to_bfloats(v.x, v.y), floats_to_bfloats(v.z, v.w));
}

inline float4 round_to(float4 v, int type) {
#ifndef __CUDACC__
  if (type == kBFloat16) {
    return round_to_bfloat(v); // without the detour by packed values
  }
#endif
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

// Loads N values, at most 16 bytes per access: vector `at` of those that start
// at p, which is aligned for them.
template <int N>
inline void
load_vector(device const uchar* p, uint at, int type, thread float* v) {
  if (type == kFloat32) {
    for (int k = 0; k < N / 4; ++k) {
      put(v + 4 * k, ((device const float4*)p)[at * (N / 4) + k]);
    }
  } else if (N == 8) {
    unpack<8>(((device const uint4*)p)[at], type, v);
  } else {
    put(v, widen(((device const uint2*)p)[at], type));
  }
}

// Rounds eight values to 16 bits each.
inline uint4 pack(thread const float* v, int type) {
  return uint4(narrow(take(v), type), narrow(take(v + 4), type));
}

#ifdef __CUDACC__
// Adds eight 16-bit values each, rounded as MLX's ops round them; see
// kernels/to_cuda/prelude.h.
inline uint4 add_packed(uint4 a, uint4 b, int type) {
  bool halves = type == kFloat16;
  return uint4(
      add_pairs(a.x, b.x, halves),
      add_pairs(a.y, b.y, halves),
      add_pairs(a.z, b.z, halves),
      add_pairs(a.w, b.w, halves));
}

inline uint4 multiply_packed(uint4 a, uint4 b, int type) {
  bool halves = type == kFloat16;
  return uint4(
      multiply_pairs(a.x, b.x, halves),
      multiply_pairs(a.y, b.y, halves),
      multiply_pairs(a.z, b.z, halves),
      multiply_pairs(a.w, b.w, halves));
}

inline uint4 packed_ones(int type) {
  uint ones = type == kFloat16 ? 0x3c003c00u : 0x3f803f80u;
  return uint4(ones, ones, ones, ones);
}
#endif

template <int N>
inline void round_vector(int type, thread float* v) {
  for (int k = 0; k < N / 4; ++k) {
    put(v + 4 * k, round_to(take(v + 4 * k), type));
  }
  for (int j = N / 4 * 4; j < N; ++j) {
    v[j] = round_to(float4(v[j], 0.0f, 0.0f, 0.0f), type).x;
  }
}

template <int N>
inline void round_step(bool rounds, int type, thread float* v) {
  if (rounds) {
    round_vector<N>(type, v);
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
