// Copyright © 2026 mlx_norms contributors
//
// Metal's library as declarations, for the address-space check: clang reads it
// as C++ for OpenCL without the generic space, whose rules for spaces are MSL's
// (device is __global, threadgroup __local, thread __private). Nothing here is
// ever run, and types matter only as far as overloads and spaces do.

#include "shim/names.h"

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#pragma OPENCL EXTENSION __cl_clang_bitfields : enable
#pragma OPENCL EXTENSION __cl_clang_variadic_functions : enable

#define device __global
#define threadgroup __local
#define constant const __constant
#define thread __private
#define METAL_FUNC inline
#define __METAL_MAYBE_FAST_MATH__ 1
#define __METAL_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 0
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define HALF_MAX 65504.0h
#define HALF_MIN 0x1p-14h
#define INT_MAX 0x7fffffff
#define UINT_MAX 0xffffffffu
#define M_PI_F 3.14159265358979323846f
#define M_E_F 2.71828182845904523536f
#define M_LN2_F 0.69314718055994530942f
#define M_LOG2E_F 1.44269504088896340736f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef ulong size_t;
typedef long ptrdiff_t;
typedef _Float16 bfloat; // 16 bits and not half

namespace metal {
template <typename T, int N>
using vec = T __attribute__((ext_vector_type(N)));
}
using metal::vec;

#define VECTOR(T, name, n)          \
  typedef metal::vec<T, n> name##n; \
  typedef metal::vec<T, n> packed_##name##n __attribute__((aligned(sizeof(T))));
#define VECTORS(T, name) \
  VECTOR(T, name, 2) VECTOR(T, name, 3) VECTOR(T, name, 4)
VECTORS(float, float)
VECTORS(half, half)
VECTORS(bfloat, bfloat)
VECTORS(char, char)
VECTORS(uchar, uchar)
VECTORS(short, short)
VECTORS(ushort, ushort)
VECTORS(int, int)
VECTORS(uint, uint)
VECTORS(long, long)
VECTORS(ulong, ulong)
VECTORS(char, bool) // OpenCL has no vectors of bool

// A conversion or construction of a vector; the check writes it for
// float4(...).
template <typename To, typename... From>
constexpr To made(From...) {
  return To{};
}
template <typename To, typename From>
To as_type(From);
template <typename T>
constexpr bool is_function_constant_defined(const T&) {
  return true;
}

namespace metal {

// Types.
template <bool B, typename T, typename F>
struct conditional {
  typedef T type;
};
template <typename T, typename F>
struct conditional<false, T, F> {
  typedef F type;
};
template <bool B, typename T, typename F>
using conditional_t = typename conditional<B, T, F>::type;
template <bool B, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, typename T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <typename T, T v>
struct integral_constant {
  static constant constexpr T value = v;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const {
    return v;
  }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;
template <typename A, typename B>
struct is_same : bool_constant<__is_same(A, B)> {};
template <typename T>
struct is_integral : bool_constant<__is_integral(T)> {};
template <typename T>
struct is_floating_point
    : bool_constant<__is_floating_point(T) || __is_same(T, bfloat)> {};
template <typename T>
struct is_arithmetic : bool_constant<__is_arithmetic(T)> {};
template <typename T>
struct is_signed : bool_constant<__is_signed(T)> {};
template <typename T>
struct is_unsigned : bool_constant<__is_unsigned(T)> {};
template <typename T>
struct is_enum : bool_constant<__is_enum(T)> {};
template <typename T>
struct is_pointer : bool_constant<__is_pointer(T)> {};
template <typename T>
struct is_const : bool_constant<__is_const(T)> {};
template <typename A, typename B>
struct is_convertible : bool_constant<__is_convertible_to(A, B)> {};
#define VALUE(name)     \
  template <typename T> \
  constant constexpr bool name##_v = name<T>::value;
VALUE(is_integral)
VALUE(is_floating_point)
VALUE(is_arithmetic)
VALUE(is_signed)
VALUE(is_unsigned)
VALUE(is_enum)
VALUE(is_pointer)
VALUE(is_const)
template <typename A, typename B>
constant constexpr bool is_same_v = is_same<A, B>::value;
template <typename A, typename B>
constant constexpr bool is_convertible_v = is_convertible<A, B>::value;
template <typename T>
struct remove_const {
  typedef T type;
};
template <typename T>
struct remove_const<const T> {
  typedef T type;
};
template <typename T>
struct remove_reference {
  typedef T type;
};
template <typename T>
struct remove_reference<T&> {
  typedef T type;
};
template <typename T>
using remove_const_t = typename remove_const<T>::type;
template <typename T>
using remove_cv_t = typename remove_const<T>::type;
template <typename T>
using remove_reference_t = typename remove_reference<T>::type;
template <typename T>
struct make_unsigned {
  typedef uint type;
};
template <>
struct make_unsigned<long> {
  typedef ulong type;
};
template <typename T>
using make_unsigned_t = typename make_unsigned<T>::type;
template <typename T>
T declval();
template <typename T>
struct numeric_limits {
  static constexpr T min() {
    return T(0);
  }
  static constexpr T max() {
    return T(1);
  }
  static constexpr T lowest() {
    return T(0);
  }
  static constexpr T epsilon() {
    return T(1);
  }
  static constexpr T infinity() {
    return T(1);
  }
  static constexpr T quiet_NaN() {
    return T(0);
  }
  static constexpr T denorm_min() {
    return T(1);
  }
  static constant constexpr int digits = 8;
  static constant constexpr bool is_signed = true;
};
template <typename T, size_t N>
struct array {
  T values[N];
  thread T& operator[](size_t i) thread {
    return values[i];
  }
  const thread T& operator[](size_t i) const thread {
    return values[i];
  }
  threadgroup T& operator[](size_t i) threadgroup {
    return values[i];
  }
  const constant T& operator[](size_t i) const constant {
    return values[i];
  }
  const device T& operator[](size_t i) const device {
    return values[i];
  }
};

// Mathematics. All arguments of one call have one shape.
#define MATH(name)                        \
  template <typename T, typename... More> \
  constexpr T name(T x, More...) {        \
    return x;                             \
  }
// clang-format off
#define MATHS \
  MATH(abs) MATH(acos) MATH(acosh) MATH(asin) MATH(asinh) MATH(atan) \
  MATH(atan2) MATH(atanh) MATH(ceil) MATH(clamp) MATH(copysign) MATH(cos) \
  MATH(cosh) MATH(cospi) MATH(exp) MATH(exp10) MATH(exp2) MATH(fabs) \
  MATH(fdim) MATH(floor) MATH(fma) MATH(fmax) MATH(fmin) MATH(fmod) \
  MATH(fract) MATH(ldexp) MATH(log) MATH(log10) MATH(log2) MATH(max) \
  MATH(max3) MATH(median3) MATH(min) MATH(min3) MATH(mix) MATH(pow) \
  MATH(powr) MATH(rint) MATH(round) MATH(rsqrt) MATH(saturate) MATH(sign) \
  MATH(sin) MATH(sinh) MATH(sinpi) MATH(smoothstep) MATH(sqrt) MATH(step) \
  MATH(tan) MATH(tanh) MATH(tanpi) MATH(trunc)
// clang-format on
MATHS
namespace fast {
MATHS
}
namespace precise {
MATHS
}
MATH(addsat)
MATH(clz)
MATH(cross)
MATH(ctz)
MATH(divide)
MATH(extract_bits)
MATH(insert_bits)
MATH(mad24)
MATH(mul24)
MATH(mulhi)
MATH(normalize)
MATH(popcount)
MATH(reverse_bits)
MATH(rotate)
MATH(select)
MATH(subsat)
template <typename T>
int ilogb(T);
template <typename T>
T frexp(T, thread int&);
template <typename T>
T modf(T, thread T&);
template <typename T, int N>
T dot(vec<T, N>, vec<T, N>);
template <typename T, int N>
T length(vec<T, N>);
template <typename T, int N>
T distance(vec<T, N>, vec<T, N>);
template <typename T>
bool isnan(T);
template <typename T>
bool isinf(T);
template <typename T>
bool isfinite(T);
template <typename T>
bool isnormal(T);
template <typename T>
bool signbit(T);
template <typename T>
bool any(T);
template <typename T>
bool all(T);

// SIMD-groups and quads.
#define LANES(name)                       \
  template <typename T, typename... More> \
  T simd_##name(T x, More...) {           \
    return x;                             \
  }                                       \
  template <typename T, typename... More> \
  T quad_##name(T x, More...) {           \
    return x;                             \
  }
LANES(and)
LANES(broadcast)
LANES(broadcast_first)
LANES(max)
LANES(min)
LANES(or)
LANES(prefix_exclusive_product)
LANES(prefix_exclusive_sum)
LANES(prefix_inclusive_product)
LANES(prefix_inclusive_sum)
LANES(product)
LANES(shuffle)
LANES(shuffle_and_fill_down)
LANES(shuffle_and_fill_up)
LANES(shuffle_down)
LANES(shuffle_rotate_down)
LANES(shuffle_rotate_up)
LANES(shuffle_up)
LANES(shuffle_xor)
LANES(sum)
LANES(xor)
struct simd_vote {
  operator ulong() const;
};
bool simd_all(bool);
bool simd_any(bool);
bool simd_is_first();
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();
bool quad_all(bool);
bool quad_any(bool);

enum class mem_flags {
  mem_none,
  mem_device,
  mem_threadgroup,
  mem_texture,
  mem_threadgroup_imageblock
};
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

template <typename T, int R, int C = R>
struct simdgroup_matrix {
  simdgroup_matrix();
  explicit simdgroup_matrix(T);
  thread vec<T, 2>& thread_elements() thread;
  const thread vec<T, 2>& thread_elements() const thread;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <typename T, int R, int C = R>
simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T);
#define MATRIX_MEMORY(space)             \
  template <typename T, int R, int C>    \
  void simdgroup_load(                   \
      thread simdgroup_matrix<T, R, C>&, \
      const space T*,                    \
      ulong = 8,                         \
      ulong2 = ulong2{},                 \
      bool = false);                     \
  template <typename T, int R, int C>    \
  void simdgroup_store(                  \
      simdgroup_matrix<T, R, C>,         \
      space T*,                          \
      ulong = 8,                         \
      ulong2 = ulong2{},                 \
      bool = false);
MATRIX_MEMORY(device)
MATRIX_MEMORY(threadgroup)
template <typename D, typename A, typename B, typename C>
void simdgroup_multiply_accumulate(thread D&, A, B, C);
template <typename D, typename A, typename B>
void simdgroup_multiply(thread D&, A, B);

// Atomics.
enum memory_order { memory_order_relaxed, memory_order_seq_cst };
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device,
  thread_scope_system
};
void atomic_thread_fence(
    mem_flags,
    memory_order,
    thread_scope = thread_scope_device);
template <typename T>
struct atomic {
  T value;
};
#define ATOMIC_UPDATE(space, name)  \
  template <typename T, typename V> \
  T atomic_##name##_explicit(volatile space atomic<T>*, V, memory_order);
#define ATOMICS(space)                                                    \
  ATOMIC_UPDATE(space, exchange)                                          \
  ATOMIC_UPDATE(space, fetch_add)                                         \
  ATOMIC_UPDATE(space, fetch_and)                                         \
  ATOMIC_UPDATE(space, fetch_max)                                         \
  ATOMIC_UPDATE(space, fetch_min)                                         \
  ATOMIC_UPDATE(space, fetch_or)                                          \
  ATOMIC_UPDATE(space, fetch_sub)                                         \
  ATOMIC_UPDATE(space, fetch_xor)                                         \
  template <typename T, typename V>                                       \
  void atomic_store_explicit(volatile space atomic<T>*, V, memory_order); \
  template <typename T>                                                   \
  T atomic_load_explicit(const volatile space atomic<T>*, memory_order);  \
  template <typename T, typename V>                                       \
  bool atomic_compare_exchange_weak_explicit(                             \
      volatile space atomic<T>*, thread T*, V, memory_order, memory_order);
ATOMICS(device)
ATOMICS(threadgroup)

} // namespace metal

// The language has types of its own by these names.
#define atomic_int metal::atomic<int>
#define atomic_uint metal::atomic<uint>
#define atomic_float metal::atomic<float>
#define atomic_bool metal::atomic<bool>
#define atomic_ulong metal::atomic<ulong>
