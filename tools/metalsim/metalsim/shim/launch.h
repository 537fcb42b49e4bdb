// Copyright © 2026 mlx_norms contributors
// What the rewritten and the generated code use.
#pragma once

#include "simdgroup.h"

namespace msl {

template <class T, size_t n>
using Array = T[n];

// The address of an argument, as what the kernel takes.
struct Address {
  void* p;
  template <class T>
  operator T*() const {
    return static_cast<T*>(p);
  }
  template <class T, size_t n>
  operator Array<T, n>&() const {
    return *static_cast<Array<T, n>*>(p);
  }
};
MSL_STATE Address bound(uint i) {
  return {metalsim::state->bindings[i]};
}
MSL_STATE Address threadgroup_argument(uint i) {
  return {metalsim::state->threadgroup_arguments[i]};
}

// A position or a size, as whichever scalar or vector the kernel takes.
struct Position {
  metalsim::Dim at;
  template <Integer T>
  operator T() const {
    return T(at.x);
  }
  template <Integer T>
  operator metal::vec<T, 2>() const {
    return metal::vec<T, 2>(T(at.x), T(at.y));
  }
  template <Integer T>
  operator metal::vec<T, 3>() const {
    return metal::vec<T, 3>(T(at.x), T(at.y), T(at.z));
  }
};

#define MSL_POSITION(name, x, y, z)              \
  MSL_STATE Position name() {                    \
    const metalsim::State& s = *metalsim::state; \
    const metalsim::Fiber& f = *s.current;       \
    (void)f;                                     \
    return {{uint(x), uint(y), uint(z)}};        \
  }
#define MSL_POSITION3(name, v) MSL_POSITION(name, v.x, v.y, v.z)
MSL_POSITION(
    thread_position_in_grid,
    s.group_position.x* s.nominal_size.x + f.position.x,
    s.group_position.y* s.nominal_size.y + f.position.y,
    s.group_position.z* s.nominal_size.z + f.position.z)
MSL_POSITION3(thread_position_in_threadgroup, f.position)
MSL_POSITION3(threadgroup_position_in_grid, s.group_position)
MSL_POSITION3(threads_per_threadgroup, s.group_size)
MSL_POSITION3(dispatch_threads_per_threadgroup, s.nominal_size)
MSL_POSITION3(threads_per_grid, s.grid_size)
MSL_POSITION3(threadgroups_per_grid, s.group_count)
MSL_POSITION(thread_index_in_threadgroup, f.thread, 0, 0)
MSL_POSITION(thread_index_in_simdgroup, f.lane, 0, 0)
MSL_POSITION(simdgroup_index_in_threadgroup, f.index, 0, 0)
MSL_POSITION(simdgroups_per_threadgroup, s.simdgroup_count, 0, 0)
MSL_POSITION(
    dispatch_simdgroups_per_threadgroup,
    (s.nominal_size.x * s.nominal_size.y * s.nominal_size.z + 31) / 32,
    0,
    0)
MSL_POSITION(threads_per_simdgroup, 32, 0, 0)
MSL_POSITION(thread_execution_width, 32, 0, 0)
MSL_POSITION(thread_index_in_quadgroup, f.lane & 3, 0, 0)
MSL_POSITION(quadgroup_index_in_threadgroup, f.thread / 4, 0, 0)
MSL_POSITION(quadgroup_index_in_simdgroup, f.lane / 4, 0, 0)
MSL_POSITION(
    quadgroups_per_threadgroup,
    (s.group_size.x * s.group_size.y * s.group_size.z + 3) / 4,
    0,
    0)
#undef MSL_POSITION3
#undef MSL_POSITION

// A variable in threadgroup memory; each type of Tag is another one.
template <class T, class Tag>
MSL_INLINE T& threadgroup_variable(const char* name) {
  static const char tag = 0;
  return *static_cast<T*>(
      metalsim::state->threadgroup_variable(&tag, sizeof(T), alignof(T), name));
}

// The thread has not returned early: it has passed whatever others wait at.
MSL_STATE void end_of_kernel() {
  const metalsim::Fiber& f = *metalsim::state->current;
  f.simdgroup->ran_through |= 1u << f.lane;
}

// A call of a function that waits for other threads, for as long as it takes.
struct Call : metalsim::Call {
  MSL_STATE explicit Call(const void* site)
      : metalsim::Call{
            static_cast<const metalsim::Site*>(site),
            metalsim::state->current->calls} {
    metalsim::state->current->calls = this;
  }
  MSL_STATE ~Call() {
    metalsim::state->current->calls = outer;
  }
};

// NumPy's kind of a scalar (b, i, u, f), B for bfloat, V for what is none.
template <class T>
constexpr char kind_of() {
  using E = Element<std::remove_cv_t<T>>;
  return std::is_same_v<E, bool>  ? 'b'
      : std::is_same_v<E, bfloat> ? 'B'
      : is_float<E>               ? 'f'
      : std::is_unsigned_v<E>     ? 'u'
      : std::is_signed_v<E>       ? 'i'
                                  : 'V';
}

struct Type {
  char kind;
  bool constant;
  uint16_t components;
  uint32_t bytes; // of one component
};

template <class P>
constexpr Type type_of() {
  using T = std::remove_pointer_t<P>;
  using E = Element<std::remove_cv_t<T>>;
  if constexpr (std::is_void_v<T>) {
    return {'V', std::is_const_v<T>, 1, 1};
  } else {
    return {
        kind_of<T>(),
        std::is_const_v<T>,
        uint16_t(size_of<T> ? size_of<T> : 1),
        sizeof(E)};
  }
}

// The types of a kernel's parameters.
template <class... P>
struct Parameters {
  Type types[sizeof...(P) + 1] = {type_of<P>()...};
};
template <class... P>
constexpr Parameters<P...> parameters(void (*)(P...)) {
  return {};
}

// A function constant of the library, set before a launch.
struct Constant {
  const char* name;
  int64_t index;
  Type type;
  void* value;
  bool defined;
  Constant* next;
};

inline Constant* constants;

template <class T>
struct FunctionConstant : Constant {
  FunctionConstant(const char* name, int64_t index, T& value)
      : Constant{name, index, type_of<T*>(), &value, false, constants} {
    constants = this;
  }
};

// A constant computed from function constants; they are in declared order.
struct Derived {
  void (*compute)();
  Derived* next;
  inline static Derived* first;
  inline static Derived** last = &first;
  explicit Derived(void (*f)()) : compute(f), next(nullptr) {
    *last = this;
    last = &next;
  }
};

} // namespace msl

extern "C" {

__attribute__((visibility("default"))) msl::Constant* metalsim_constants() {
  return msl::constants;
}

__attribute__((visibility("default"))) void metalsim_compute_constants() {
  for (auto* d = msl::Derived::first; d; d = d->next) {
    d->compute();
  }
}
}
