// Copyright © 2026 mlx_norms contributors
// What the files of the runtime use of each other.
#pragma once

#include "state.h"

namespace metalsim {

extern State state;

// faults.cpp
void report(
    const char* kind,
    const char* buffer,
    const void* pc,
    const char* message);
void report_at(
    const char* kind,
    const char* buffer,
    const Site* site,
    const void* pc,
    const char* message);

// heap.cpp
void reserve_memory();
void place_buffers(Launch& launch);
void return_buffers(Launch& launch);
void report_unwritten(Launch& launch);
Cell* new_cells(size_t count);
void forget_cells(); // of all memory: none is as if written or read
// The binding that an address is nearest to, and its offset there.
struct Nearest {
  const char* name;
  long offset;
  unsigned long bytes;
  bool bound;
};
Nearest nearest_binding(const char* address);

// threadgroup.cpp
void begin_threadgroup_memory();
void clear_threadgroup_memory();
void* threadgroup_variable(
    const void* tag,
    size_t bytes,
    size_t align,
    const char* name);

// scheduler.cpp
void collective(
    uint32_t operation,
    const Site* site,
    Combine combine,
    void* slot);
void simdgroup_barrier(uint32_t flags, const Site* site);
void threadgroup_barrier(uint32_t flags, const Site* site);
void inactive_lane(uint32_t lane, uint32_t read);
void begin_schedule();
void run_threadgroup(Dim position, uint64_t number);
bool on_a_stack_guard(const char* address);

} // namespace metalsim
