// Copyright © 2026 mlx_norms contributors
// <metal_atomic>. One thread runs at a time, so plain copies are atomic; they
// are made out of sight of the memory checks, which are told instead.
#pragma once

#include "simdgroup.h"

extern "C" {
__attribute__((visibility("hidden"))) void
metalsim_atomic_read(void* to, const void* p, size_t n);
__attribute__((visibility("hidden"))) void
metalsim_atomic_write(void* p, const void* from, size_t n);
}

namespace metal {

enum memory_order {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device
};

template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;

template <class T>
MSL_INLINE T atomic_load_explicit(const volatile atomic<T>* a, memory_order) {
  T x;
  metalsim_atomic_read(&x, const_cast<const T*>(&a->value), sizeof x);
  return x;
}
template <class T>
MSL_INLINE void atomic_store_explicit(
    volatile atomic<T>* a,
    std::type_identity_t<T> x,
    memory_order) {
  metalsim_atomic_write(const_cast<T*>(&a->value), &x, sizeof x);
}

#define MSL_ATOMIC(name, expression)                \
  template <class T>                                \
  MSL_INLINE T atomic_##name##_explicit(            \
      volatile atomic<T>* a,                        \
      std::type_identity_t<T> operand,              \
      memory_order order) {                         \
    T old = atomic_load_explicit(a, order);         \
    atomic_store_explicit(a, T(expression), order); \
    return old;                                     \
  }
MSL_ATOMIC(exchange, operand)
MSL_ATOMIC(fetch_add, old + operand)
MSL_ATOMIC(fetch_sub, old - operand)
MSL_ATOMIC(fetch_and, old& operand)
MSL_ATOMIC(fetch_or, old | operand)
MSL_ATOMIC(fetch_xor, old ^ operand)
MSL_ATOMIC(fetch_min, metal::min(old, operand))
MSL_ATOMIC(fetch_max, metal::max(old, operand))
#undef MSL_ATOMIC

template <class T>
MSL_INLINE bool atomic_compare_exchange_weak_explicit(
    volatile atomic<T>* a,
    T* expected,
    std::type_identity_t<T> wanted,
    memory_order order,
    memory_order) {
  T old = atomic_load_explicit(a, order);
  bool equal = !__builtin_memcmp(&old, expected, sizeof old);
  if (equal) {
    atomic_store_explicit(a, wanted, order);
  } else {
    *expected = old;
  }
  return equal;
}

MSL_INLINE void atomic_thread_fence(
    mem_flags,
    memory_order,
    thread_scope = thread_scope_device) {}

} // namespace metal
