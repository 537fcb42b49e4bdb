// Copyright © 2026 mlx_norms contributors
// vec and packed_vec; the rewriter turns swizzles into calls.
#pragma once

#include "types.h"

namespace metal {

template <class T, int N>
struct vec;
template <class T, int N>
struct packed_vec;

} // namespace metal

namespace msl {

template <class V>
struct Shape {
  static constexpr int size = 0;
  using Element = V;
};
template <class T, int N>
struct Shape<metal::vec<T, N>> {
  static constexpr int size = N;
  using Element = T;
};
template <class T, int N>
struct Shape<metal::packed_vec<T, N>> {
  static constexpr int size = N;
  using Element = T;
};
template <class V>
inline constexpr int size_of = Shape<std::remove_cvref_t<V>>::size;
template <class V>
using Element = typename Shape<std::remove_cvref_t<V>>::Element;
template <class V>
concept Vector = size_of<V> > 0;

template <int N, class T>
MSL_INLINE constexpr void copy(T* to, const T* from) {
  if (N == 3 ||
      __builtin_is_constant_evaluated()) { // g++ checks no copy of an odd size
    for (int i = 0; i < N; i++) {
      to[i] = from[i];
    }
  } else {
    __builtin_memcpy(to, from, N * sizeof(T));
  }
}

// Some components of a vector, to assign to; it lies where the vector lies.
template <class T, int... I>
struct Lanes {
  using Value = metal::vec<T, sizeof...(I)>;
  T elements[1];

  operator Value() const {
    return Value(first()[I]...);
  }
  Lanes& operator=(const Value& v) {
    int k = 0;
    ((first()[I] = v[k++]), ...);
    return *this;
  }
  Lanes& operator=(const Lanes& other) {
    return *this = Value(other);
  }
  template <class V>
  Lanes& operator+=(const V& v) {
    return *this = Value(*this) + v;
  }
  template <class V>
  Lanes& operator-=(const V& v) {
    return *this = Value(*this) - v;
  }
  template <class V>
  Lanes& operator*=(const V& v) {
    return *this = Value(*this) * v;
  }
  template <class V>
  Lanes& operator/=(const V& v) {
    return *this = Value(*this) / v;
  }

 private:
  T* first() {
    return reinterpret_cast<T*>(this);
  }
  const T* first() const {
    return reinterpret_cast<const T*>(this);
  }
};

} // namespace msl

// Swizzles that are fields of the source's classes too, and so not rewritten:
// vectors have them as members, which convert to vectors.
#ifndef MSL_SWIZZLES_2
#define MSL_SWIZZLES_2
#define MSL_SWIZZLES_3
#define MSL_SWIZZLES_4
#endif

namespace metal {

// A copy takes the components without padding. It is written out, for compilers
// do not check the alignment of what they copy by themselves.
#define MSL_VECTOR_MEMBERS(N)                                 \
  vec() = default;                                            \
  MSL_INLINE constexpr vec(const vec& v) : elements{} {       \
    msl::copy<N>(elements, v.elements);                       \
  }                                                           \
  MSL_INLINE constexpr vec& operator=(const vec& v) {         \
    msl::copy<N>(elements, v.elements);                       \
    return *this;                                             \
  }                                                           \
  template <class S>                                          \
    requires(msl::is_scalar<S>)                               \
  constexpr vec(S s) : elements{} {                           \
    for (int i = 0; i < N; i++) {                             \
      elements[i] = T(s);                                     \
    }                                                         \
  }                                                           \
  template <class U>                                          \
    requires(!std::is_same_v<U, T>)                           \
  constexpr explicit vec(const vec<U, N>& v) : elements{} {   \
    for (int i = 0; i < N; i++) {                             \
      elements[i] = T(v[i]);                                  \
    }                                                         \
  }                                                           \
  template <class... A>                                       \
    requires(sizeof...(A) > 1)                                \
  constexpr vec(const A&... a) : elements{} {                 \
    static_assert(                                            \
        ((msl::size_of<A> ? msl::size_of<A> : 1) + ...) <= N, \
        "more components than the vector has");               \
    int k = 0;                                                \
    (put(k, a), ...);                                         \
  }                                                           \
  MSL_ELEMENT_ACCESS

#define MSL_ELEMENT_ACCESS                                    \
  MSL_INLINE constexpr T& operator[](size_t i) {              \
    return elements[i];                                       \
  }                                                           \
  MSL_INLINE constexpr const T& operator[](size_t i) const {  \
    return elements[i];                                       \
  }                                                           \
  template <int... I>                                         \
  MSL_INLINE constexpr vec<T, sizeof...(I)> swizzle() const { \
    return vec<T, sizeof...(I)>(elements[I]...);              \
  }                                                           \
  template <int... I>                                         \
  MSL_INLINE msl::Lanes<T, I...>& lanes() {                   \
    return reinterpret_cast<msl::Lanes<T, I...>&>(elements);  \
  }                                                           \
  template <class A>                                          \
  constexpr void put(int& k, const A& a) {                    \
    if constexpr (msl::size_of<A> == 0) {                     \
      elements[k++] = T(a);                                   \
    } else {                                                  \
      for (int i = 0; i < msl::size_of<A>; i++) {             \
        elements[k++] = T(a[i]);                              \
      }                                                       \
    }                                                         \
  }

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  union {
    T elements[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    MSL_SWIZZLES_2
  };
  MSL_VECTOR_MEMBERS(2)
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  union {
    T elements[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    MSL_SWIZZLES_3
  };
  MSL_VECTOR_MEMBERS(3)
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  union {
    T elements[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    MSL_SWIZZLES_4
  };
  MSL_VECTOR_MEMBERS(4)
};

#define MSL_PACKED_MEMBERS(N)                                          \
  packed_vec() = default;                                              \
  constexpr packed_vec(const vec<T, N>& v) : elements{} {              \
    for (int i = 0; i < N; i++) {                                      \
      elements[i] = v[i];                                              \
    }                                                                  \
  }                                                                    \
  template <class... A>                                                \
    requires(sizeof...(A) > 1)                                         \
  constexpr packed_vec(const A&... a) : packed_vec(vec<T, N>(a...)) {} \
  template <class S>                                                   \
    requires(msl::is_scalar<S>)                                        \
  constexpr packed_vec(S s) : packed_vec(vec<T, N>(s)) {}              \
  constexpr operator vec<T, N>() const {                               \
    vec<T, N> v;                                                       \
    for (int i = 0; i < N; i++) {                                      \
      v[i] = elements[i];                                              \
    }                                                                  \
    return v;                                                          \
  }                                                                    \
  MSL_ELEMENT_ACCESS

template <class T>
struct packed_vec<T, 2> {
  union {
    T elements[2];
    struct {
      T x, y;
    };
  };
  MSL_PACKED_MEMBERS(2)
};

template <class T>
struct packed_vec<T, 3> {
  union {
    T elements[3];
    struct {
      T x, y, z;
    };
  };
  MSL_PACKED_MEMBERS(3)
};

template <class T>
struct packed_vec<T, 4> {
  union {
    T elements[4];
    struct {
      T x, y, z, w;
    };
  };
  MSL_PACKED_MEMBERS(4)
};

} // namespace metal

namespace msl {

// Operands of an operator on vectors: two of one type, or one and a scalar.
template <class A, class B>
concept Operands = (Vector<A> && Vector<B> && size_of<A> == size_of<B> &&
                    std::is_same_v<Element<A>, Element<B>>) ||
    (Vector<A> && is_scalar<B>) || (is_scalar<A> && Vector<B>);
template <class A, class B>
using Common = metal::vec<
    Element<std::conditional_t<Vector<A>, A, B>>,
    size_of<std::conditional_t<Vector<A>, A, B>>>;

template <class T, class A>
MSL_INLINE constexpr T component(const A& a, int i) {
  if constexpr (Vector<A>) {
    return a[i];
  } else {
    return T(a);
  }
}

} // namespace msl

namespace metal {

#define MSL_OPERATOR(op)                                            \
  template <class A, class B>                                       \
    requires msl::Operands<A, B>                                    \
  constexpr msl::Common<A, B> operator op(const A& a, const B& b) { \
    using V = msl::Common<A, B>;                                    \
    using T = msl::Element<V>;                                      \
    V r;                                                            \
    for (int i = 0; i < msl::size_of<V>; i++) {                     \
      r[i] = T(msl::component<T>(a, i) op msl::component<T>(b, i)); \
    }                                                               \
    return r;                                                       \
  }                                                                 \
  template <class A, class B>                                       \
    requires(msl::Vector<A> && msl::Operands<A, B>)                 \
  constexpr A& operator op## = (A & a, const B& b) {                \
    return a = a op b;                                              \
  }
MSL_OPERATOR(+)
MSL_OPERATOR(-)
MSL_OPERATOR(*)
MSL_OPERATOR(/)
MSL_OPERATOR(%)
MSL_OPERATOR(&)
MSL_OPERATOR(|)
MSL_OPERATOR(^)
MSL_OPERATOR(<<)
MSL_OPERATOR(>>)
#undef MSL_OPERATOR

#define MSL_COMPARISON(op)                                          \
  template <class A, class B>                                       \
    requires msl::Operands<A, B>                                    \
  constexpr vec<bool, msl::size_of<msl::Common<A, B>>> operator op( \
      const A& a, const B& b) {                                     \
    using V = msl::Common<A, B>;                                    \
    using T = msl::Element<V>;                                      \
    vec<bool, msl::size_of<V>> r;                                   \
    for (int i = 0; i < msl::size_of<V>; i++) {                     \
      r[i] = msl::component<T>(a, i) op msl::component<T>(b, i);    \
    }                                                               \
    return r;                                                       \
  }
MSL_COMPARISON(==)
MSL_COMPARISON(!=)
MSL_COMPARISON(<)
MSL_COMPARISON(>)
MSL_COMPARISON(<=)
MSL_COMPARISON(>=)
MSL_COMPARISON(&&)
MSL_COMPARISON(||)
#undef MSL_COMPARISON

#define MSL_UNARY(op)                                   \
  template <class T, int N>                             \
  constexpr vec<T, N> operator op(const vec<T, N>& a) { \
    vec<T, N> r;                                        \
    for (int i = 0; i < N; i++) {                       \
      r[i] = T(op a[i]);                                \
    }                                                   \
    return r;                                           \
  }
MSL_UNARY(+)
MSL_UNARY(-)
MSL_UNARY(~)
MSL_UNARY(!)
#undef MSL_UNARY

template <class T, int N>
constexpr vec<T, N>& operator++(vec<T, N>& a) {
  return a = a + T(1);
}
template <class T, int N>
constexpr vec<T, N>& operator--(vec<T, N>& a) {
  return a = a - T(1);
}

} // namespace metal

#define MSL_VECTORS(T)                           \
  typedef metal::vec<T, 2> T##2;                 \
  typedef metal::vec<T, 3> T##3;                 \
  typedef metal::vec<T, 4> T##4;                 \
  typedef metal::packed_vec<T, 2> packed_##T##2; \
  typedef metal::packed_vec<T, 3> packed_##T##3; \
  typedef metal::packed_vec<T, 4> packed_##T##4;
MSL_VECTORS(bool)
MSL_VECTORS(char)
MSL_VECTORS(uchar)
MSL_VECTORS(short)
MSL_VECTORS(ushort)
MSL_VECTORS(int)
MSL_VECTORS(uint)
MSL_VECTORS(long)
MSL_VECTORS(ulong)
MSL_VECTORS(half)
MSL_VECTORS(bfloat)
MSL_VECTORS(float)
#undef MSL_VECTORS

template <class To, class From>
MSL_INLINE To as_type(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
