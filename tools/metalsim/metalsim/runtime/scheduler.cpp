// Copyright © 2026 mlx_norms contributors
// Runs the threads of a threadgroup, each on a fiber, in the schedule's order.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fiber.h"
#include "runtime.h"

namespace metalsim {

namespace {

// Bits of mem_flags
constexpr uint32_t kThreadgroupMemory = 2;
constexpr uint32_t kDeviceMemory = 1;

constexpr size_t kGuard = 4096;

Fiber fibers[kMaxThreads]; // by SIMD-group, then by place in the schedule
Simdgroup simdgroups[kMaxSimdgroups];
uint32_t simdgroup_order[kMaxSimdgroups];
// The schedule's permutation of a SIMD-group, and its inverse
uint32_t lane_at[kLanes], place_of[kLanes];
uint32_t free_stacks[kMaxThreads], free_stack_count, stack_count;
uint32_t barrier_flags;
bool switches_simdgroups; // after each SIMD operation
bool diverged; // threads of this threadgroup have waited at different barriers
Dim prepared_size; // for which `fibers` and `simdgroups` are laid out
void* scheduler_stack_pointer;

uint32_t places(uint32_t lanes) {
  uint32_t mask = 0;
  for (; lanes; lanes &= lanes - 1) {
    mask |= 1u << place_of[__builtin_ctz(lanes)];
  }
  return mask;
}

void run_fibers();

Fiber* fiber_of(const Simdgroup& group, uint32_t lane) {
  return &fibers[(&group - simdgroups) * kLanes + place_of[lane]];
}

Fiber* take_ready(Simdgroup& group) {
  if (!group.ready) {
    return nullptr;
  }
  uint32_t place = __builtin_ctz(group.ready);
  group.ready &= group.ready - 1;
  return &fibers[(&group - simdgroups) * kLanes + place];
}

void begin(Fiber& fiber) {
  if (!free_stack_count) {
    // A page without access below each stack catches its overflow.
    char* bottom = state.stacks + stack_count * kStackBytes;
    mprotect(bottom + kGuard, kStackBytes - kGuard, PROT_READ | PROT_WRITE);
    free_stacks[free_stack_count++] = stack_count++;
  }
  fiber.stack = free_stacks[--free_stack_count];
  // Tops at different offsets, or the stacks would share their cache sets.
  char* top =
      state.stacks + (fiber.stack + 1) * kStackBytes - (fiber.stack % 61) * 192;
  fiber.stack_pointer = new_stack_pointer(top, run_fibers);
}

void resume(Fiber* fiber, void** save) {
  if (!fiber->stack_pointer) {
    begin(*fiber);
  }
  state.current = fiber;
  metalsim_switch(save, fiber->stack_pointer);
}

// To the next thread of the SIMD-group that can run, or to the scheduler.
void suspend(void** save, Simdgroup& group) {
  if (Fiber* next = take_ready(group)) {
    resume(next, save);
  } else {
    metalsim_switch(save, scheduler_stack_pointer);
  }
}

void run_fibers() {
  for (;;) {
    state.launch->kernel();
    Fiber* done = state.current;
    Simdgroup& group = *done->simdgroup;
    group.live &= ~(1u << done->lane);
    done->stack_pointer = nullptr;
    Fiber* next = take_ready(group);
    if (next && !next->stack_pointer) {
      // A thread that has not begun takes this stack over.
      next->stack = done->stack;
      state.current = next;
      continue;
    }
    free_stacks[free_stack_count++] = done->stack;
    void* unused;
    if (next) {
      resume(next, &unused);
    }
    metalsim_switch(&unused, scheduler_stack_pointer);
  }
}

bool same_site(const Site* a, const Site* b) {
  return a == b ||
      (a->line == b->line && a->column == b->column &&
       !std::strcmp(a->file, b->file));
}

// Whether two threads are at one place, reached through the same calls.
bool same_place(
    const Site* a,
    const Call* a_calls,
    const Site* b,
    const Call* b_calls) {
  for (; a_calls && b_calls;
       a_calls = a_calls->outer, b_calls = b_calls->outer) {
    if (!same_site(a_calls->site, b_calls->site)) {
      return false;
    }
  }
  return a_calls == b_calls && same_site(a, b);
}

struct Place {
  char text[80];
  Place(const Site* site, const Call* calls) {
    size_t n = std::snprintf(text, sizeof text, "line %u", site->line);
    for (; calls && n < sizeof text; calls = calls->outer) {
      n += std::snprintf(
          text + n, sizeof text - n, ", called at %u", calls->site->line);
    }
  }
};

void finish_operation(Simdgroup& group, uint32_t active) {
  void* slots[kLanes];
  for (uint32_t lane = 0; lane < kLanes; lane++) {
    slots[lane] = active >> lane & 1 ? group.slots[lane] : nullptr;
  }
  if (group.operation != kSimdBarrier) {
    state.launch->simd_ops++;
  }
  group.combine(slots, active);
  group.arrived &= ~active;
  group.ready |= places(active);
  if (group.arrived) {
    uint32_t lane = __builtin_ctz(group.arrived);
    group.site = group.at[lane];
    group.calls = group.called[lane];
    group.combine = group.doing[lane];
  }
}

// Some lanes wait at a SIMD operation that the others will not reach.
void finish_divergent(Simdgroup& group) {
  uint32_t first = __builtin_ctz(group.arrived);
  const Site* site = group.at[first];
  uint32_t active = 0;
  for (uint32_t lane = 0; lane < kLanes; lane++) {
    if (group.arrived >> lane & 1 && group.doing[lane] == group.doing[first] &&
        same_place(
            group.at[lane], group.called[lane], site, group.called[first])) {
      active |= 1u << lane;
    }
  }
  group.site = site;
  group.combine = group.doing[first];
  state.current = fiber_of(group, first);

  uint32_t elsewhere = group.live & ~active;
  uint32_t through = group.ran_through & ~group.live;
  bool partial_matrix = group.operation == kMatrix && active != ~0u;
  if (elsewhere || through || partial_matrix) {
    char message[200];
    int n = std::snprintf(
        message,
        sizeof message,
        "%d of %d lanes execute the SIMD operation",
        __builtin_popcount(active),
        __builtin_popcount(group.exist));
    if (elsewhere) {
      uint32_t lane = __builtin_ctz(elsewhere);
      Place other(group.at[lane], group.called[lane]);
      std::snprintf(
          message + n,
          sizeof message - n,
          ", lane %u is at %s",
          lane,
          other.text);
    } else if (through) {
      std::snprintf(
          message + n,
          sizeof message - n,
          ", lane %d has passed it by",
          __builtin_ctz(through));
    }
    report_at("SIMD divergence", "", site, nullptr, message);
  }
  // The lane that is resumed finishes it on its own stack.
  group.pending = active;
  resume(state.current, &scheduler_stack_pointer);
}

// Runs a SIMD-group until its lanes wait, or just past a SIMD operation.
void step(Simdgroup& group) {
  if (Fiber* fiber = take_ready(group)) {
    resume(fiber, &scheduler_stack_pointer);
  } else {
    finish_divergent(group);
  }
}

void pass_barrier(uint32_t live, uint32_t threads) {
  const Site* site = nullptr;
  const Site* other = nullptr;
  const Call *calls = nullptr, *other_calls = nullptr;
  for (uint32_t s = 0; s < state.simdgroup_count; s++) {
    for (uint32_t held = simdgroups[s].held; held; held &= held - 1) {
      uint32_t lane = __builtin_ctz(held);
      const Site* here = simdgroups[s].at[lane];
      const Call* called = simdgroups[s].called[lane];
      if (!site) {
        site = here;
        calls = called;
        state.current = fiber_of(simdgroups[s], lane);
      } else if (!other && !same_place(site, calls, here, called)) {
        other = here;
        other_calls = called;
      }
    }
  }
  char message[200];
  if (other) {
    diverged = true;
    std::snprintf(
        message,
        sizeof message,
        "threads wait at different barriers: %s and %s",
        Place(site, calls).text,
        Place(other, other_calls).text);
    report_at("barrier divergence", "", site, nullptr, message);
  }
  if (live != threads && !diverged) {
    std::snprintf(
        message,
        sizeof message,
        "%u of %u threads have returned before the barrier",
        threads - live,
        threads);
    report_at("barrier after return", "", site, nullptr, message);
  }
  state.launch->barriers++;
  state.threadgroup_clock.now += (barrier_flags & kThreadgroupMemory) != 0;
  state.device_clock.now += (barrier_flags & kDeviceMemory) != 0;
  barrier_flags = 0;
  for (uint32_t s = 0; s < state.simdgroup_count; s++) {
    simdgroups[s].ready = places(simdgroups[s].held);
    simdgroups[s].held = 0;
  }
}

uint32_t random_number(uint32_t& seed) {
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}

// As they come in schedule 0, backwards in 1, drawn in the others.
void permute(uint32_t* order, uint32_t n, uint32_t& seed, uint32_t schedule) {
  for (uint32_t i = 0; i < n; i++) {
    order[i] = schedule == 1 ? n - 1 - i : i;
  }
  if (schedule > 1) {
    for (uint32_t i = n; i > 1; i--) {
      uint32_t j = random_number(seed) % i;
      uint32_t t = order[i - 1];
      order[i - 1] = order[j];
      order[j] = t;
    }
  }
}

void prepare(Dim size, uint32_t order, uint64_t number) {
  uint32_t threads = size.x * size.y * size.z;
  state.simdgroup_count = (threads + kLanes - 1) / kLanes;
  uint32_t seed = (order * 2654435761u + uint32_t(number)) | 1;
  permute(simdgroup_order, state.simdgroup_count, seed, order);
  permute(lane_at, kLanes, seed, order);
  for (uint32_t place = 0; place < kLanes; place++) {
    place_of[lane_at[place]] = place;
  }
  for (uint32_t s = 0; s < state.simdgroup_count; s++) {
    uint32_t lanes = threads - s * kLanes;
    simdgroups[s].exist = lanes < kLanes ? (1u << lanes) - 1 : ~0u;
    for (uint32_t place = 0; place < kLanes; place++) {
      Fiber& fiber = fibers[s * kLanes + place];
      uint32_t t = s * kLanes + lane_at[place];
      fiber.simdgroup = &simdgroups[s];
      fiber.index = s;
      fiber.lane = lane_at[place];
      fiber.thread = t;
      fiber.position = {t % size.x, t / size.x % size.y, t / size.x / size.y};
    }
  }
  // In the other schedules, each runs on to the next barrier.
  switches_simdgroups = order > 1 && order % 2;
}

template <uint32_t flags>
void pass_turn(void**, uint32_t) {
  Simdgroup& group = *state.current->simdgroup;
  group.turn[0] += (flags & kThreadgroupMemory) != 0;
  group.turn[1] += (flags & kDeviceMemory) != 0;
}

Dim group_size_at(Dim position) {
  const Launch& launch = *state.launch;
  const uint32_t at[3] = {position.x, position.y, position.z};
  uint32_t size[3];
  for (int i = 0; i < 3; i++) {
    uint32_t left = launch.grid[i] - at[i] * launch.group[i];
    size[i] =
        launch.nonuniform && left < launch.group[i] ? left : launch.group[i];
  }
  return {size[0], size[1], size[2]};
}

} // namespace

void collective(
    uint32_t operation,
    const Site* site,
    Combine combine,
    void* slot) {
  Fiber* self = state.current;
  Simdgroup& group = *self->simdgroup;
  group.slots[self->lane] = slot;
  group.at[self->lane] = site;
  group.called[self->lane] = self->calls;
  group.doing[self->lane] = combine;
  if (!group.arrived) {
    group.site = site;
    group.calls = self->calls;
    group.operation = operation;
    group.combine = combine;
    group.uniform = true;
  } else if (
      group.combine != combine ||
      !same_place(group.site, group.calls, site, self->calls)) {
    group.uniform = false;
  }
  group.arrived |= 1u << self->lane;
  if (group.arrived == group.exist && group.uniform) {
    finish_operation(group, group.arrived);
    if (switches_simdgroups) {
      metalsim_switch(&self->stack_pointer, scheduler_stack_pointer);
    } else {
      group.ready &= ~(1u << place_of[self->lane]);
    }
    return;
  }
  suspend(&self->stack_pointer, group);
  if (group.pending) {
    finish_operation(group, group.pending);
    group.pending = 0;
    group.ready &= ~(1u << place_of[self->lane]);
  }
}

void simdgroup_barrier(uint32_t flags, const Site* site) {
  constexpr Combine turns[] = {
      pass_turn<0>, pass_turn<1>, pass_turn<2>, pass_turn<3>};
  collective(kSimdBarrier, site, turns[flags & 3], nullptr);
}

void threadgroup_barrier(uint32_t flags, const Site* site) {
  Fiber* self = state.current;
  Simdgroup& group = *self->simdgroup;
  group.at[self->lane] = site;
  group.called[self->lane] = self->calls;
  group.held |= 1u << self->lane;
  barrier_flags |= flags;
  suspend(&self->stack_pointer, group);
}

void inactive_lane(uint32_t lane, uint32_t read) {
  char message[160];
  std::snprintf(
      message,
      sizeof message,
      "lane %u reads lane %u, which does not take part",
      lane,
      read);
  report_at(
      "SIMD divergence", "", state.current->simdgroup->site, nullptr, message);
}

void begin_schedule() {
  if (!state.stacks) {
    state.stacks_bytes = kMaxThreads * kStackBytes;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // The lowest stack may overflow past its guard page, too.
    size_t bytes = kStackBytes + state.stacks_bytes;
    void* p = mmap(nullptr, bytes, PROT_NONE, flags, -1, 0);
    if (p == MAP_FAILED) {
      std::perror("metalsim: cannot reserve stacks");
      std::abort();
    }
    state.stacks = static_cast<char*>(p) + kStackBytes;
  }
  // A launch that was stopped has left threads behind.
  for (uint32_t i = 0; i < stack_count; i++) {
    free_stacks[i] = i;
  }
  free_stack_count = stack_count;
  for (Fiber& fiber : fibers) {
    fiber.stack_pointer = nullptr;
    fiber.calls = nullptr;
  }
  prepared_size = {};
  barrier_flags = 0;
}

void run_threadgroup(Dim position, uint64_t number) {
  Dim size = group_size_at(position);
  uint32_t order = state.launch->order;
  state.group_position = position;
  state.group_size = size;
  diverged = false;
  if (order > 1 || std::memcmp(&size, &prepared_size, sizeof size)) {
    prepare(size, order, number);
    prepared_size = size;
  }
  state.threadgroup_clock.group = ++state.threadgroup_clock.now;
  state.device_clock.group = ++state.device_clock.now;
  uint32_t threads = size.x * size.y * size.z;
  for (uint32_t s = 0; s < state.simdgroup_count; s++) {
    Simdgroup& group = simdgroups[s];
    group.live = group.exist;
    group.ready = places(group.exist);
    group.arrived = group.held = group.ran_through = group.pending = 0;
    group.turn[0] = group.turn[1] = 0;
  }
  for (;;) {
    bool again = true;
    while (again) {
      again = false;
      for (uint32_t i = 0; i < state.simdgroup_count; i++) {
        Simdgroup& group = simdgroups[simdgroup_order[i]];
        while (group.ready || group.arrived) {
          step(group);
          if (switches_simdgroups) {
            again = true;
            break;
          }
        }
      }
    }
    uint32_t live = 0;
    for (uint32_t s = 0; s < state.simdgroup_count; s++) {
      live += __builtin_popcount(simdgroups[s].live);
    }
    if (!live) {
      break;
    }
    pass_barrier(live, threads);
  }
  state.current = nullptr;
}

bool on_a_stack_guard(const char* address) {
  if (address < state.stacks) {
    return state.stacks - address <= static_cast<ptrdiff_t>(kStackBytes);
  }
  size_t at = address - state.stacks;
  return at < state.stacks_bytes && at % kStackBytes < kGuard;
}

} // namespace metalsim
