// Copyright © 2026 mlx_norms contributors
// Fibers that keep values in the registers a call has to keep, over many
// switches. Exits with 1 if one of them is lost.
#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

#if defined(__aarch64__)
const char* const processor = "aarch64";
#elif defined(__x86_64__)
const char* const processor = "x86_64";
#endif

constexpr int kFibers = 16;
constexpr int kRounds = 1000;
constexpr int kValues = 10; // more than there are registers of either kind

alignas(16) char stacks[kFibers][metalsim::kStackBytes];
void* stack_pointers[kFibers];
void* scheduler;
int current;
int finished;
int wrong;

// Hides where a value comes from, so that it has to be kept.
template <typename T>
T opaque(T value) {
  asm volatile("" : "+m"(value)::"memory");
  return value;
}

[[gnu::noinline]] void yield() {
  metalsim::metalsim_switch(&stack_pointers[current], scheduler);
}

// Adds `step` to each of the values between two switches. They are named one by
// one, as an array would live in memory.
template <typename T>
[[gnu::noinline]] bool values_are_kept(T first, T step) {
  T a = opaque<T>(first), b = opaque<T>(first + 1), c = opaque<T>(first + 2),
    d = opaque<T>(first + 3), e = opaque<T>(first + 4),
    f = opaque<T>(first + 5), g = opaque<T>(first + 6),
    h = opaque<T>(first + 7), i = opaque<T>(first + 8),
    j = opaque<T>(first + 9);
  for (int round = 0; round < kRounds; round++) {
    yield();
    a += step, b += step, c += step, d += step, e += step;
    f += step, g += step, h += step, i += step, j += step;
  }
  const T values[kValues] = {a, b, c, d, e, f, g, h, i, j};
  for (int k = 0; k < kValues; k++) {
    if (values[k] != first + k + kRounds * step) {
      return false;
    }
  }
  return true;
}

void entry() {
  alignas(16) char aligned[16];
  const int fiber = current;
  wrong += reinterpret_cast<uintptr_t>(opaque(&aligned[0])) % 16 != 0;
  wrong += !values_are_kept<int64_t>(int64_t(fiber) << 32, fiber + 1);
  wrong += !values_are_kept<double>(fiber / 8.0, fiber + 0.5);
  finished++;
  for (;;) {
    yield();
  }
}

} // namespace

int main() {
  const double kept = opaque(0.25);
  for (int i = 0; i < kFibers; i++) {
    char* top = stacks[i] + metalsim::kStackBytes - 192 * i;
    stack_pointers[i] = metalsim::new_stack_pointer(top, entry);
  }
  int switches = 0;
  while (finished < kFibers) {
    for (current = 0; current < kFibers; current++) {
      metalsim::metalsim_switch(&scheduler, stack_pointers[current]);
      switches++;
    }
  }
  wrong += kept != 0.25;
  std::printf(
      "%s: %d fibers, %d switches, %d lost values\n",
      processor,
      kFibers,
      switches,
      wrong);
  return wrong != 0;
}
