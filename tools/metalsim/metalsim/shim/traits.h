// Copyright © 2026 mlx_norms contributors
// <metal_type_traits>, <metal_limits> and metal::array.
#pragma once

#include "vector.h"

namespace metal {

using std::add_const_t;
using std::bool_constant;
using std::common_type_t;
using std::conditional;
using std::conditional_t;
using std::conjunction_v;
using std::decay_t;
using std::declval;
using std::disjunction_v;
using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::integral_constant;
using std::is_arithmetic;
using std::is_arithmetic_v;
using std::is_base_of_v;
using std::is_class_v;
using std::is_const_v;
using std::is_convertible;
using std::is_convertible_v;
using std::is_empty_v;
using std::is_enum_v;
using std::is_integral;
using std::is_integral_v;
using std::is_pointer;
using std::is_pointer_v;
using std::is_reference_v;
using std::is_same;
using std::is_same_v;
using std::is_signed;
using std::is_signed_v;
using std::is_unsigned;
using std::is_unsigned_v;
using std::is_void_v;
using std::make_signed;
using std::make_signed_t;
using std::make_unsigned;
using std::make_unsigned_t;
using std::remove_const_t;
using std::remove_cv;
using std::remove_cv_t;
using std::remove_pointer_t;
using std::remove_reference;
using std::remove_reference_t;
using std::true_type;
using std::underlying_type_t;
template <class... T>
using _disjunction = std::disjunction<T...>;
template <class... T>
using _conjunction = std::conjunction<T...>;

template <class T>
inline constexpr bool is_floating_point_v = msl::is_float<T>;
template <class T>
struct is_floating_point : bool_constant<msl::is_float<T>> {};
template <class T>
inline constexpr bool is_scalar_v = msl::is_scalar<T>;
template <class T>
inline constexpr bool is_vector_v = msl::Vector<T>;
template <class T>
struct is_vector : bool_constant<msl::Vector<T>> {};
template <class T>
struct make_scalar {
  using type = msl::Element<T>;
};
template <class T>
using make_scalar_t = msl::Element<T>;
template <class T>
inline constexpr int vec_elements_v = msl::size_of<T> ? msl::size_of<T> : 1;
template <class T>
struct remove_addrspace {
  using type = T;
};
template <class T>
using remove_addrspace_t = T;
template <class T>
using uniform = T;
template <class T>
constexpr T make_uniform(T x) {
  return x;
}

template <class T>
struct numeric_limits : std::numeric_limits<T> {};

#define MSL_LIMITS(T, DIGITS, MAX, MIN, EPSILON) \
  template <>                                    \
  struct numeric_limits<T> {                     \
    static constexpr bool is_specialized = true; \
    static constexpr bool is_signed = true;      \
    static constexpr bool is_integer = false;    \
    static constexpr bool has_infinity = true;   \
    static constexpr int digits = DIGITS;        \
    static constexpr T max() {                   \
      return T(MAX);                             \
    }                                            \
    static constexpr T min() {                   \
      return T(MIN);                             \
    }                                            \
    static constexpr T lowest() {                \
      return T(-MAX);                            \
    }                                            \
    static constexpr T epsilon() {               \
      return T(EPSILON);                         \
    }                                            \
    static constexpr T infinity() {              \
      return T(__builtin_inff());                \
    }                                            \
    static constexpr T quiet_NaN() {             \
      return T(__builtin_nanf(""));              \
    }                                            \
  };
MSL_LIMITS(half, 11, 65504.0f, 0x1p-14f, 0x1p-10f)
MSL_LIMITS(bfloat, 8, 0x1.fep127f, 0x1p-126f, 0x1p-7f)
#undef MSL_LIMITS

template <class T, size_t N>
struct array {
  T elements[N];
  constexpr T& operator[](size_t i) {
    return elements[i];
  }
  constexpr const T& operator[](size_t i) const {
    return elements[i];
  }
  static constexpr size_t size() {
    return N;
  }
  constexpr T* data() {
    return elements;
  }
  constexpr const T* data() const {
    return elements;
  }
};

} // namespace metal
