// Copyright © 2026 mlx_norms contributors
//
// Puts itself into the tables of CPU kernels, and reads after each call, on the
// thread of the call, whether the kernel has left upper halves of vector
// registers in use.

#include <cpuid.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "csrc/norm/cpu_kernels.h"
#include "csrc/rope/cpu_kernels.h"

namespace {

using namespace mlx_norms::cpu;

// Of the processor's XINUSE the upper halves of ymm0 to 15 and of zmm0 to 15.
bool in_use() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return low & (1u << 2 | 1u << 6);
}

} // namespace

extern "C" {
constexpr int kMost = 64;
int watched = 0;
const char* names[kMost];
long calls[kMost], left[kMost];
}

namespace {

template <auto kSlot>
const char* name_of() {
  return __PRETTY_FUNCTION__;
}

template <auto kSlot>
struct Watched;

template <typename Table, typename... Args, void (*Table::*kSlot)(Args...)>
struct Watched<kSlot> {
  static inline void (*kernel)(Args...);
  static inline int i;

  static void call(Args... args) {
    asm volatile("vzeroupper");
    kernel(args...);
    left[i] += in_use();
    ++calls[i];
  }

  static void put_into(Table& table) {
    kernel = table.*kSlot;
    table.*kSlot = call;
    names[i = watched++] = name_of<kSlot>();
  }
};

template <auto... kSlots, typename Table>
void put_into(Table* table) {
  static_assert(sizeof(Table) == sizeof...(kSlots) * sizeof(void*));
  auto page = reinterpret_cast<uintptr_t>(table) & -getpagesize();
  auto end = reinterpret_cast<uintptr_t>(table + 1);
  mprotect(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE);
  (Watched<kSlots>::put_into(*table), ...);
}

} // namespace

extern "C" {

// Whether the processor says what is in use: it does after a write of an upper
// half, and not after vzeroupper.
bool can_read() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) ||
      !__get_cpuid_count(13, 1, &a, &b, &c, &d) || !(a & 1u << 2)) {
    return false;
  }
  asm volatile("vcmpps $15, %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  bool after_write = in_use();
  asm volatile("vzeroupper");
  return after_write && !in_use();
}

void watch(Kernels* norm, RopeKernels* rope) {
  put_into<
      &Kernels::norm,
      &Kernels::norm_vjp,
      &Kernels::lane_statistics,
      &Kernels::lane_factors,
      &Kernels::lane_norm,
      &Kernels::lane_sums,
      &Kernels::lane_gradients,
      &Kernels::add_sums,
      &Kernels::load,
      &Kernels::store>(norm);
  put_into<
      &RopeKernels::inverse_frequencies,
      &RopeKernels::angles,
      &RopeKernels::row>(rope);
}

} // extern "C"
