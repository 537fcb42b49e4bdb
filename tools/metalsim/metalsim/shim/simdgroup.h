// Copyright © 2026 mlx_norms contributors
// <metal_simdgroup>, <metal_quadgroup> and the barriers. A reduction is a tree
// over lanes 1, 2, 4, 8 and 16 apart.
#pragma once

#include <source_location>

#include "common.h"

namespace msl {

// Where the caller stands, as a default argument.
#define MSL_SITE const void* site = __builtin_source_location()
// Reads the runtime's state; inlined into checked code, it would be checked.
#ifdef MSL_CHECKED
#define MSL_STATE inline __attribute__((noinline)) MSL_UNCHECKED
#else
#define MSL_STATE MSL_INLINE
#endif
#define MSL_COMBINE [](void** slots, uint32_t active) MSL_UNCHECKED

// What lanes exchange: numbers of up to 32 bits, and vectors of them.
template <class T>
concept Exchanged = is_scalar<Element<T>> && sizeof(Element<T>) <= 4 &&
    !std::is_same_v<Element<T>, bool>;

MSL_STATE uint lane() {
  return metalsim::state->current->lane;
}
MSL_STATE void meet(
    metalsim::Operation operation,
    const void* site,
    metalsim::Combine combine,
    void* slot) {
  metalsim::state->collective(
      operation, static_cast<const metalsim::Site*>(site), combine, slot);
}

// Waits for the other lanes; `combine` then sees the slots of the active ones.
template <class Slot>
MSL_INLINE void together(
    metalsim::Operation operation,
    Slot& slot,
    metalsim::Combine combine,
    const void* site) {
  meet(operation, site, combine, &slot);
}

template <class T, class F>
T reduce(T x, F, const void* site) {
  together(
      metalsim::kReduce,
      x,
      MSL_COMBINE {
        T partial[32];
        for (uint i = 0; i < 32; i++) {
          if (active >> i & 1) {
            partial[i] = *static_cast<T*>(slots[i]);
          }
        }
        uint32_t filled = active;
        for (uint step = 1; step < 32; step *= 2) {
          for (uint i = 0; i < 32; i += 2 * step) {
            bool left = filled >> i & 1, right = filled >> (i + step) & 1;
            if (left && right) {
              partial[i] = F()(partial[i], partial[i + step]);
            } else if (right) {
              partial[i] = partial[i + step];
              filled |= 1u << i;
            }
          }
        }
        for (uint i = 0; i < 32; i++) {
          if (active >> i & 1) {
            *static_cast<T*>(slots[i]) = partial[0];
          }
        }
      },
      site);
  return x;
}

template <class T, class F>
T quad_reduce(T x, F, const void* site) {
  together(
      metalsim::kReduce,
      x,
      MSL_COMBINE {
        for (uint quad = 0; quad < 32; quad += 4) {
          T total{};
          bool any = false;
          for (uint i = quad; i < quad + 4; i++) {
            if (active >> i & 1) {
              T v = *static_cast<T*>(slots[i]);
              total = any ? F()(total, v) : v;
              any = true;
            }
          }
          for (uint i = quad; i < quad + 4; i++) {
            if (active >> i & 1) {
              *static_cast<T*>(slots[i]) = total;
            }
          }
        }
      },
      site);
  return x;
}

template <bool inclusive, class T, class F>
T scan(T x, T neutral, F, const void* site) {
  struct Slot {
    T value, neutral;
  } slot = {x, neutral};
  together(
      metalsim::kReduce,
      slot,
      MSL_COMBINE {
        T total{};
        bool any = false;
        for (uint i = 0; i < 32; i++) {
          if (active >> i & 1) {
            Slot& s = *static_cast<Slot*>(slots[i]);
            T before = any ? total : s.neutral;
            total = F()(before, s.value);
            any = true;
            s.value = inclusive ? total : before;
          }
        }
      },
      site);
  return slot.value;
}

struct Sum {
  template <class T>
  MSL_UNCHECKED T operator()(const T& a, const T& b) const {
    return T(a + b);
  }
};
struct Product {
  template <class T>
  MSL_UNCHECKED T operator()(const T& a, const T& b) const {
    return T(a * b);
  }
};
struct Max {
  template <class T>
  MSL_UNCHECKED T operator()(const T& a, const T& b) const {
    return T(metal::max(a, b));
  }
};
struct Min {
  template <class T>
  MSL_UNCHECKED T operator()(const T& a, const T& b) const {
    return T(metal::min(a, b));
  }
};
// Bits of a float as well, for which MLX's headers declare these.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 2, ushort, uint>;

#define MSL_BITWISE(Name, op)                                     \
  struct Name {                                                   \
    template <class T>                                            \
    T operator()(const T& a, const T& b) const {                  \
      if constexpr (is_float<T>) {                                \
        return as_type<T>(                                        \
            Bits<T>(as_type<Bits<T>>(a) op as_type<Bits<T>>(b))); \
      } else {                                                    \
        return T(a op b);                                         \
      }                                                           \
    }                                                             \
  };
MSL_BITWISE(And, &)
MSL_BITWISE(Or, |)
MSL_BITWISE(Xor, ^)
#undef MSL_BITWISE

// A lane reads `value` or `fill` of lane `source`; -1 stands for its own value.
template <class T>
struct Shuffled {
  T value, fill, result;
  int source;
  bool filled;
};

template <class T>
T shuffle(T x, T fill, int source, bool filled, const void* site) {
  Shuffled<T> slot = {x, fill, x, source, filled};
  together(
      metalsim::kShuffle,
      slot,
      MSL_COMBINE {
        for (uint i = 0; i < 32; i++) {
          if (!(active >> i & 1)) {
            continue;
          }
          auto& s = *static_cast<Shuffled<T>*>(slots[i]);
          if (s.source < 0) {
            continue;
          }
          if (s.source < 32 && active >> s.source & 1) {
            auto& other = *static_cast<Shuffled<T>*>(slots[s.source]);
            s.result = s.filled ? other.fill : other.value;
          } else {
            __builtin_memset(
                static_cast<void*>(&s.result), 0xff, sizeof s.result);
            metalsim::state->inactive_lane(i, s.source);
          }
        }
      },
      site);
  return slot.result;
}

} // namespace msl

namespace metal {

enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(int(a) | int(b));
}

MSL_STATE void threadgroup_barrier(mem_flags flags, MSL_SITE) {
  metalsim::state->threadgroup_barrier(
      uint32_t(flags), static_cast<const metalsim::Site*>(site));
}
MSL_STATE void simdgroup_barrier(mem_flags flags, MSL_SITE) {
  metalsim::state->simdgroup_barrier(
      uint32_t(flags), static_cast<const metalsim::Site*>(site));
}

#define MSL_REDUCTION(name, F)                      \
  template <msl::Exchanged T>                       \
  MSL_INLINE T simd_##name(T x, MSL_SITE) {         \
    return msl::reduce(x, F(), site);               \
  }                                                 \
  template <msl::Exchanged T>                       \
  MSL_INLINE T quad_##name(T x, MSL_SITE) {         \
    return msl::quad_reduce(x, F(), site);          \
  }                                                 \
  template <class T>                                \
  MSL_INLINE T __metal_simd_##name(T x, MSL_SITE) { \
    return msl::reduce(x, F(), site);               \
  }
MSL_REDUCTION(sum, msl::Sum)
MSL_REDUCTION(product, msl::Product)
MSL_REDUCTION(max, msl::Max)
MSL_REDUCTION(min, msl::Min)
MSL_REDUCTION(and, msl::And)
MSL_REDUCTION(or, msl::Or)
MSL_REDUCTION(xor, msl::Xor)
#undef MSL_REDUCTION

#define MSL_SCAN(name, inclusive, neutral, F)              \
  template <msl::Exchanged T>                              \
  MSL_INLINE T simd_prefix_##name(T x, MSL_SITE) {         \
    return msl::scan<inclusive>(x, T(neutral), F(), site); \
  }                                                        \
  template <class T>                                       \
  MSL_INLINE T __metal_simd_prefix_##name(T x, MSL_SITE) { \
    return msl::scan<inclusive>(x, T(neutral), F(), site); \
  }
MSL_SCAN(inclusive_sum, true, 0, msl::Sum)
MSL_SCAN(exclusive_sum, false, 0, msl::Sum)
MSL_SCAN(inclusive_product, true, 1, msl::Product)
MSL_SCAN(exclusive_product, false, 1, msl::Product)
#undef MSL_SCAN

// `source` is the lane to read; where it is negative, a lane keeps its value.
#define MSL_SHUFFLE(name, source)                        \
  template <msl::Exchanged T>                            \
  MSL_INLINE T name(T x, ushort n, MSL_SITE) {           \
    int i = msl::lane(), k = n;                          \
    (void)i;                                             \
    return msl::shuffle(x, x, source, false, site);      \
  }                                                      \
  template <class T>                                     \
  MSL_INLINE T __metal_##name(T x, ushort n, MSL_SITE) { \
    return name(x, n, site);                             \
  }
MSL_SHUFFLE(simd_shuffle, k)
MSL_SHUFFLE(simd_broadcast, k)
MSL_SHUFFLE(simd_shuffle_xor, i ^ k)
MSL_SHUFFLE(simd_shuffle_down, i + k > 31 ? -1 : i + k)
MSL_SHUFFLE(simd_shuffle_up, i - k)
MSL_SHUFFLE(simd_shuffle_rotate_down, (i + k) & 31)
MSL_SHUFFLE(simd_shuffle_rotate_up, (i - k) & 31)
MSL_SHUFFLE(quad_shuffle, (i & ~3) | (k & 3))
MSL_SHUFFLE(quad_broadcast, (i & ~3) | (k & 3))
MSL_SHUFFLE(quad_shuffle_xor, i ^ (k & 3))
MSL_SHUFFLE(quad_shuffle_down, (i & 3) + k > 3 ? -1 : i + k)
MSL_SHUFFLE(quad_shuffle_up, (i & 3) < k ? -1 : i - k)
#undef MSL_SHUFFLE

template <msl::Exchanged T>
MSL_INLINE T simd_shuffle_and_fill_down(
    T x,
    T fill,
    ushort n,
    ushort modulo = 32,
    MSL_SITE) {
  int i = msl::lane();
  bool filled = i % modulo + n >= modulo;
  return msl::shuffle(x, fill, filled ? i + n - modulo : i + n, filled, site);
}
template <msl::Exchanged T>
MSL_INLINE T
simd_shuffle_and_fill_up(T x, T fill, ushort n, ushort modulo = 32, MSL_SITE) {
  int i = msl::lane();
  bool filled = i % modulo < n;
  return msl::shuffle(x, fill, filled ? i - n + modulo : i - n, filled, site);
}
template <class T>
MSL_INLINE T __metal_simd_shuffle_and_fill_down(
    T x,
    T fill,
    ushort n,
    ushort modulo = 32,
    MSL_SITE) {
  return simd_shuffle_and_fill_down(x, fill, n, modulo, site);
}
template <class T>
MSL_INLINE T __metal_simd_shuffle_and_fill_up(
    T x,
    T fill,
    ushort n,
    ushort modulo = 32,
    MSL_SITE) {
  return simd_shuffle_and_fill_up(x, fill, n, modulo, site);
}

template <msl::Exchanged T>
MSL_INLINE T simd_broadcast_first(T x, MSL_SITE) {
  msl::together(
      metalsim::kShuffle,
      x,
      MSL_COMBINE {
        T first = *static_cast<T*>(slots[__builtin_ctz(active)]);
        for (uint i = 0; i < 32; i++) {
          if (active >> i & 1) {
            *static_cast<T*>(slots[i]) = first;
          }
        }
      },
      site);
  return x;
}

struct simd_vote {
  using vote_t = ulong;
  vote_t votes;
  explicit constexpr simd_vote(vote_t v = 0) : votes(v) {}
  explicit constexpr operator vote_t() const {
    return votes;
  }
  constexpr bool all() const {
    return votes == 0xffffffffu;
  }
  constexpr bool any() const {
    return votes != 0;
  }
};

} // namespace metal

namespace msl {

// The lanes that say yes, and the lanes asked.
struct Ballot {
  uint32_t votes, active;
};

MSL_INLINE Ballot ballot(bool yes, const void* site) {
  Ballot slot = {yes, 0};
  together(
      metalsim::kVote,
      slot,
      MSL_COMBINE {
        uint32_t votes = 0;
        for (uint i = 0; i < 32; i++) {
          if (active >> i & 1 && static_cast<Ballot*>(slots[i])->votes) {
            votes |= 1u << i;
          }
        }
        for (uint i = 0; i < 32; i++) {
          if (active >> i & 1) {
            *static_cast<Ballot*>(slots[i]) = {votes, active};
          }
        }
      },
      site);
  return slot;
}

} // namespace msl

namespace metal {

MSL_INLINE simd_vote simd_ballot(bool yes, MSL_SITE) {
  return simd_vote(msl::ballot(yes, site).votes);
}
MSL_INLINE simd_vote simd_active_threads_mask(MSL_SITE) {
  return simd_vote(msl::ballot(true, site).votes);
}
MSL_INLINE bool simd_any(bool yes, MSL_SITE) {
  return msl::ballot(yes, site).votes != 0;
}
MSL_INLINE bool simd_all(bool yes, MSL_SITE) {
  msl::Ballot b = msl::ballot(yes, site);
  return b.votes == b.active;
}
MSL_INLINE bool simd_is_first(MSL_SITE) {
  return uint(__builtin_ctz(msl::ballot(true, site).active)) == msl::lane();
}

} // namespace metal

inline ushort __metal_get_simdgroup_size(ushort) {
  return 32;
}
