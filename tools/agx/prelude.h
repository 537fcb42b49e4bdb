// What kernels use of Metal's library, in C++ for OpenCL.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define INLINE __attribute__((always_inline)) inline

// What is not known where a kernel is optimized, only where it is specialized.
#ifdef SPECIALIZED
#define FUNCTION_CONSTANT(T, name, ...) \
  extern __constant constexpr T name = __VA_ARGS__
#else
#define FUNCTION_CONSTANT(T, name, ...) extern __constant T name
#endif

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };

INLINE mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(int(a) | int(b));
}
INLINE uint fences(mem_flags of) {
  return (int(of) & 1 ? CLK_GLOBAL_MEM_FENCE : 0) |
      (int(of) & 2 ? CLK_LOCAL_MEM_FENCE : 0);
}
INLINE void threadgroup_barrier(mem_flags of) {
  work_group_barrier(fences(of));
}
INLINE void simdgroup_barrier(mem_flags of) {
  sub_group_barrier(fences(of));
}

template <typename T, typename U>
INLINE T as_type(U v) {
  return __builtin_astype(v, T);
}

#define OF_SIMD_GROUP(T)                        \
  INLINE T simd_sum(T v) {                      \
    return sub_group_reduce_add(v);             \
  }                                             \
  INLINE T simd_max(T v) {                      \
    return sub_group_reduce_max(v);             \
  }                                             \
  INLINE T simd_min(T v) {                      \
    return sub_group_reduce_min(v);             \
  }                                             \
  INLINE T simd_shuffle(T v, uint lane) {       \
    return sub_group_shuffle(v, lane);          \
  }                                             \
  INLINE T simd_broadcast(T v, uint lane) {     \
    return sub_group_shuffle(v, lane);          \
  }                                             \
  INLINE T simd_shuffle_xor(T v, uint mask) {   \
    return sub_group_shuffle_xor(v, mask);      \
  }                                             \
  INLINE T simd_shuffle_down(T v, uint delta) { \
    return sub_group_shuffle_down(v, delta);    \
  }
OF_SIMD_GROUP(float)
OF_SIMD_GROUP(half)
OF_SIMD_GROUP(int)
OF_SIMD_GROUP(uint)
INLINE bool simd_any(bool v) {
  return sub_group_any(v) != 0;
}

INLINE float2 simd_shuffle_xor(float2 v, uint mask) {
  return (float2)(simd_shuffle_xor(v.x, mask), simd_shuffle_xor(v.y, mask));
}
INLINE float4 simd_shuffle_xor(float4 v, uint mask) {
  return (float4)(simd_shuffle_xor(v.xy, mask), simd_shuffle_xor(v.zw, mask));
}

namespace precise {
INLINE float rsqrt(float v) {
  return ::rsqrt(v);
}
INLINE float sqrt(float v) {
  return ::sqrt(v);
}
INLINE float exp(float v) {
  return ::exp(v);
}
INLINE float exp2(float v) {
  return ::exp2(v);
}
INLINE float sin(float v) {
  return ::sin(v);
}
INLINE float cos(float v) {
  return ::cos(v);
}
} // namespace precise

namespace fast {
INLINE float rsqrt(float v) {
  return ::native_rsqrt(v);
}
INLINE float exp(float v) {
  return ::native_exp(v);
}
} // namespace fast

} // namespace metal

// A call of a vector's type makes a vector in Metal, and is a cast of the last
// value in C++.
#define VECTORS(T)                              \
  INLINE T##2 make_##T##2(T a) {                \
    return (T##2)(a);                           \
  }                                             \
  INLINE T##2 make_##T##2(T a, T b) {           \
    return (T##2)(a, b);                        \
  }                                             \
  INLINE T##3 make_##T##3(T a) {                \
    return (T##3)(a);                           \
  }                                             \
  INLINE T##3 make_##T##3(T a, T b, T c) {      \
    return (T##3)(a, b, c);                     \
  }                                             \
  INLINE T##4 make_##T##4(T a) {                \
    return (T##4)(a);                           \
  }                                             \
  INLINE T##4 make_##T##4(T a, T b, T c, T d) { \
    return (T##4)(a, b, c, d);                  \
  }                                             \
  INLINE T##4 make_##T##4(T##2 a, T##2 b) {     \
    return (T##4)(a, b);                        \
  }
VECTORS(float)
VECTORS(half)
VECTORS(char)
VECTORS(uchar)
VECTORS(short)
VECTORS(ushort)
VECTORS(int)
VECTORS(uint)
VECTORS(long)
VECTORS(ulong)

#define CONVERSIONS(T, U)           \
  INLINE T##2 make_##T##2(U##2 v) { \
    return convert_##T##2(v);       \
  }                                 \
  INLINE T##4 make_##T##4(U##4 v) { \
    return convert_##T##4(v);       \
  }
CONVERSIONS(float, float)
CONVERSIONS(float, half)
CONVERSIONS(float, int)
CONVERSIONS(float, uint)
CONVERSIONS(float, ushort)
CONVERSIONS(float, uchar)
CONVERSIONS(half, float)
CONVERSIONS(half, half)
CONVERSIONS(uint, uint)
CONVERSIONS(uint, ushort)
CONVERSIONS(uint, uchar)
CONVERSIONS(int, int)

// Vectors that are aligned as their elements are.
#define PACKED(T)                            \
  struct packed_##T##4 {                     \
    T v[4];                                  \
    INLINE packed_##T##4(T##4 a) {           \
      v[0] = a.x;                            \
      v[1] = a.y;                            \
      v[2] = a.z;                            \
      v[3] = a.w;                            \
    }                                        \
    INLINE operator T##4() const {           \
      return (T##4)(v[0], v[1], v[2], v[3]); \
    }                                        \
    INLINE operator T##4() const __global {  \
      return (T##4)(v[0], v[1], v[2], v[3]); \
    }                                        \
  };
PACKED(float)
PACKED(half)
