// Apple's AIR intrinsics in OpenCL C; air.py has air.a.b as air_a_b.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define INLINE __attribute__((always_inline))

#define OF_SIMD_GROUP(T, type)                              \
  INLINE T air_simd_sum_##type(T v) {                       \
    return sub_group_reduce_add(v);                         \
  }                                                         \
  INLINE T air_simd_max_##type(T v) {                       \
    return sub_group_reduce_max(v);                         \
  }                                                         \
  INLINE T air_simd_shuffle_down_##type(T v, short delta) { \
    return sub_group_shuffle_down(v, delta);                \
  }                                                         \
  INLINE T air_simd_shuffle_xor_##type(T v, short mask) {   \
    return sub_group_shuffle_xor(v, mask);                  \
  }                                                         \
  INLINE T air_simd_shuffle_##type(T v, short lane) {       \
    return sub_group_shuffle(v, lane);                      \
  }
OF_SIMD_GROUP(float, f32)
OF_SIMD_GROUP(half, f16)

INLINE float air_rsqrt_f32(float v) {
  return rsqrt(v);
}
INLINE float air_sqrt_f32(float v) {
  return sqrt(v);
}
INLINE float air_convert_f_f32_u_i32(uint v) {
  return (float)v;
}
INLINE float air_convert_f_f32_s_i32(int v) {
  return (float)v;
}
INLINE float air_convert_f_f32_u_i16(ushort v) {
  return (float)v;
}
INLINE float air_convert_f_f32_u_i8(uchar v) {
  return (float)v;
}
INLINE float air_convert_f_f32_f_f16(half v) {
  return (float)v;
}
INLINE half air_convert_f_f16_f_f32(float v) {
  return (half)v;
}

INLINE void air_wg_barrier(int flags, int scope) {
  work_group_barrier(
      (flags & 1 ? CLK_GLOBAL_MEM_FENCE : 0) |
      (flags & 2 ? CLK_LOCAL_MEM_FENCE : 0));
}

INLINE uint position_threadgroup_position_in_grid(uint axis) {
  return get_group_id(axis);
}
INLINE uint position_threadgroups_per_grid(uint axis) {
  return get_num_groups(axis);
}
INLINE uint position_thread_position_in_threadgroup(uint axis) {
  return get_local_id(axis);
}
INLINE uint position_thread_position_in_grid(uint axis) {
  return get_global_id(axis);
}
INLINE uint position_threads_per_grid(uint axis) {
  return get_global_size(axis);
}
INLINE uint position_threads_per_threadgroup(uint axis) {
  return get_local_size(axis);
}
INLINE uint position_thread_index_in_threadgroup(uint axis) {
  return get_local_linear_id();
}
INLINE uint position_thread_index_in_simdgroup(uint axis) {
  return get_sub_group_local_id();
}
INLINE uint position_simdgroup_index_in_threadgroup(uint axis) {
  return get_sub_group_id();
}
INLINE uint position_simdgroups_per_threadgroup(uint axis) {
  return get_num_sub_groups();
}
INLINE uint position_threads_per_simdgroup(uint axis) {
  return 32;
}

// bfloat by its bits, and what is computed with it in float.
INLINE float bfloat_to_float(ushort v) {
  return as_float((uint)v << 16);
}
INLINE ushort float_to_bfloat(float v) {
  uint bits = as_uint(v), rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return (bits & 0x7fffffffu) > 0x7f800000u ? (bits | 0x400000u) >> 16
                                            : rounded >> 16;
}
#define OF_BFLOAT(name, sign)                                           \
  INLINE ushort bfloat_##name(ushort a, ushort b) {                     \
    return float_to_bfloat(bfloat_to_float(a) sign bfloat_to_float(b)); \
  }
OF_BFLOAT(fadd, +)
OF_BFLOAT(fsub, -)
OF_BFLOAT(fmul, *)
OF_BFLOAT(fdiv, /)
INLINE ushort bfloat_fmuladd(ushort a, ushort b, ushort c) {
  return float_to_bfloat(
      bfloat_to_float(a) * bfloat_to_float(b) + bfloat_to_float(c));
}

// What the compiler is told to assume.
INLINE bool air_is_uniform_i1(bool v) {
  return true;
}
INLINE bool air_is_uniform_i32(int v) {
  return true;
}
