// Copyright © 2026 mlx_norms contributors
// Threadgroup memory: variables in an arena, with unused bytes between them.
#include <cstdio>
#include <cstring>

#include "runtime.h"

namespace metalsim {

namespace {

constexpr size_t kRedZone = 64;

size_t round_up(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

} // namespace

void* threadgroup_variable(
    const void* tag,
    size_t bytes,
    size_t align,
    const char* name) {
  for (uint32_t i = 0; i < state.variable_count; i++) {
    if (state.variables[i].tag == tag) {
      return state.variables[i].address;
    }
  }
  Launch& launch = *state.launch;
  char message[160];
  size_t start = round_up(
      state.arena_used + kRedZone, align > kArenaUnit ? align : kArenaUnit);
  if (state.variable_count == kMaxVariables ||
      start + bytes + kRedZone > kArenaBytes) {
    std::snprintf(
        message,
        sizeof message,
        "no room for the %zu bytes of '%s'",
        bytes,
        name);
    report(
        "threadgroup memory limit", name, __builtin_return_address(0), message);
    state.stop();
  }
  char* address = state.arena + start;
  state.variables[state.variable_count++] = {tag, name, address, bytes};
  for (size_t i = start / kArenaUnit; i * kArenaUnit < start + bytes; i++) {
    state.arena_variable[i] = uint8_t(state.variable_count);
  }
  state.arena_used = start + bytes;
  std::memset(address, 0xff, bytes);

  size_t before = launch.threadgroup_used;
  launch.threadgroup_used += round_up(bytes, kArenaUnit);
  if (before <= kThreadgroupLimit &&
      launch.threadgroup_used > kThreadgroupLimit) {
    std::snprintf(
        message,
        sizeof message,
        "%zu bytes of threadgroup memory with '%s', the limit is %zu",
        size_t(launch.threadgroup_used),
        name,
        kThreadgroupLimit);
    report(
        "threadgroup memory limit", name, __builtin_return_address(0), message);
  }
  return address;
}

void begin_threadgroup_memory() {
  Launch& launch = *state.launch;
  std::memset(state.arena_variable, 0, state.arena_used / kArenaUnit + 1);
  state.variable_count = 0;
  state.arena_used = 0;
  for (uint32_t i = 0; i < kMaxBindings; i++) {
    const char* name = launch.threadgroup_names[i];
    uint64_t bytes = launch.threadgroup_bytes[i];
    state.threadgroup_arguments[i] =
        name ? threadgroup_variable(name, bytes, kArenaUnit, name) : nullptr;
  }
}

void clear_threadgroup_memory() {
  std::memset(state.arena, 0xff, state.arena_used);
}

} // namespace metalsim
