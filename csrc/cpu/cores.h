// Copyright © 2026 mlx_norms contributors
//
// Which core a thread runs on. Linux may wake a thread on the core of the
// thread that woke it and leave both there for milliseconds, while another core
// is idle.

#pragma once

#if defined(__linux__)
#include <sched.h>
#endif

namespace mlx_norms::cpu {

#if defined(__linux__)

inline int this_core() {
  return sched_getcpu();
}

// Moves this thread off `core`, if it runs there and may run on others. It
// stays away until it is moved off another core.
inline void leave_core(int core) {
  thread_local const cpu_set_t allowed = [] {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) {
      CPU_ZERO(&cores);
    }
    return cores;
  }();
  if (core < 0 || core >= CPU_SETSIZE || this_core() != core) {
    return;
  }
  auto others = allowed;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) > 0) {
    sched_setaffinity(0, sizeof(others), &others);
  }
}

#else

inline int this_core() {
  return -1;
}

inline void leave_core(int) {}

#endif

} // namespace mlx_norms::cpu
