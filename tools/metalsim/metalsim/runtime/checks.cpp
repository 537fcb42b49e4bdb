// Copyright © 2026 mlx_norms contributors
// The checks of memory accesses, linked into each library: what is compiled
// with -fsanitize=thread calls them in place of ThreadSanitizer's runtime.
#include <link.h>

#include <cstdio>
#include <cstring>

#include "cells.h"

#define HIDDEN __attribute__((visibility("hidden")))

namespace metalsim {

static State before_attaching; // for what static initializers access
HIDDEN State* state = &before_attaching;

namespace {

// The memory of this library, with its constants, and that of the runtime.
struct Image {
  uintptr_t start, end;
  bool has(const void* p) const {
    auto at = reinterpret_cast<uintptr_t>(p);
    return at >= start && at < end;
  }
};
Image images[2];

__attribute__((noinline, cold)) void report_race(
    const Conflict& conflict,
    Access access,
    const char* kind,
    const char* name,
    long at,
    const void* pc) {
  char message[200], who[64] = "another thread";
  if (conflict.other_threadgroup) {
    std::snprintf(who, sizeof who, "another threadgroup");
  } else if (conflict.thread >= 0) {
    std::snprintf(who, sizeof who, "thread %d", conflict.thread);
  }
  std::snprintf(
      message,
      sizeof message,
      "%s byte %ld of '%s' races with %s by %s",
      access == kWrite ? "write to" : "read of",
      at,
      name,
      conflict.with,
      who);
  state->fault(kind, name, pc, message);
}

// The binding that an access to `buffer` is likeliest to go through.
const Binding& binding_of(const Buffer& buffer, const char* address) {
  const Launch& launch = *state->launch;
  const Binding* best = nullptr;
  for (const Binding& binding : launch.bindings) {
    if (!binding.name || binding.buffer != &buffer - launch.buffers) {
      continue;
    }
    const char* begin = binding.address - (buffer.views > 1) * binding.offset;
    if (!best || (begin <= address && binding.address > best->address)) {
      best = &binding;
    }
  }
  return *best;
}

__attribute__((noinline, cold)) void report_out_of_bounds(
    Access access,
    const char* kind,
    const char* name,
    size_t bytes,
    long at,
    size_t size,
    const void* pc) {
  char message[200];
  std::snprintf(
      message,
      sizeof message,
      "%s of %zu bytes at byte %ld of '%s', which has %zu",
      access == kWrite ? "write" : "read",
      bytes,
      at,
      name,
      size);
  state->fault(kind, name, pc, message);
}

template <Access access>
void shade_device(
    Buffer& b,
    const char* p,
    size_t offset,
    uint16_t view,
    size_t bytes,
    bool atomic,
    const void* pc) {
  State& s = *state;
  uint32_t shift = granule(offset, bytes, b.shift);
  if (shift < b.shift) {
    Cell* cells =
        s.new_cells((b.bytes >> shift) + (size_t(1) << (b.shift - shift)));
    if (b.touched) {
      split_cells(cells, b.cells, (b.bytes >> b.shift) + 1, b.shift, shift);
    }
    b.cells = cells;
    b.shift = shift;
  }
  b.touched = 1;
  Memory m = {
      s.device_clock,
      s.device_clock.launch,
      uint16_t(s.current->thread),
      s.current->simdgroup->turn[1],
      view};
  Cell* cell = b.cells + (offset >> b.shift);
  Found found = note<access>(cell, cell + (bytes >> b.shift), m, atomic);
  if (found.conflict.with) {
    const Binding& binding = binding_of(b, p);
    report_race(
        found.conflict,
        access,
        "device race",
        binding.name,
        p - binding.address,
        pc);
  } else if (found.view >= 0) {
    const Binding& binding = binding_of(b, p);
    const Binding& other = binding_of(b, b.base + found.view * b.stride);
    char message[200];
    std::snprintf(
        message,
        sizeof message,
        "byte %ld of '%s' is read and was written through '%s'",
        long(p - binding.address),
        binding.name,
        other.name);
    s.fault("aliased read", binding.name, pc, message);
  }
  if (found.blank && !b.initialized) {
    const Binding& binding = binding_of(b, p);
    char message[200];
    std::snprintf(
        message,
        sizeof message,
        "byte %ld of '%s' is read and was never written",
        long(p - binding.address),
        binding.name);
    s.fault("uninitialized device", binding.name, pc, message);
  }
}

template <Access access>
void access_threadgroup(
    const char* p,
    size_t bytes,
    bool atomic,
    const void* pc) {
  State& s = *state;
  size_t offset = p - s.arena;
  uint8_t number = s.arena_variable[offset / kArenaUnit];
  const Variable* v = number ? &s.variables[number - 1] : nullptr;
  if (!v || p + bytes > v->address + v->bytes) {
    if (!v) { // between two variables: past the one before, or before the first
      v = s.variables;
      for (uint32_t i = 0; i < s.variable_count; i++) {
        v = s.variables[i].address <= p ? &s.variables[i] : v;
      }
    }
    report_out_of_bounds(
        access,
        "out-of-bounds threadgroup",
        v->name,
        bytes,
        p - v->address,
        v->bytes,
        pc);
    return;
  }
  uint32_t shift = granule(offset, bytes, s.arena_shift);
  if (shift < s.arena_shift) {
    split_cells(
        s.arena_cells,
        s.arena_cells,
        kArenaBytes >> s.arena_shift,
        s.arena_shift,
        shift);
    s.arena_shift = shift;
  }
  Memory m = {
      s.threadgroup_clock,
      s.threadgroup_clock.group,
      uint16_t(s.current->thread),
      s.current->simdgroup->turn[0],
      0};
  Cell* cell = s.arena_cells + (offset >> s.arena_shift);
  Found found = note<access>(cell, cell + (bytes >> s.arena_shift), m, atomic);
  if (found.conflict.with) {
    report_race(
        found.conflict,
        access,
        "threadgroup race",
        v->name,
        p - v->address,
        pc);
  }
  if (found.blank) {
    char message[200];
    std::snprintf(
        message,
        sizeof message,
        "byte %ld of '%s' is read and was not written in this threadgroup",
        long(p - v->address),
        v->name);
    s.fault("uninitialized threadgroup", v->name, pc, message);
  }
}

// The access is to no memory of the thread: it would harm the simulator.
[[noreturn]] void
refuse(Access access, const char* p, size_t bytes, const void* pc) {
  char message[200];
  std::snprintf(
      message,
      sizeof message,
      "%s of %zu bytes at address %p, which is in no buffer",
      access == kWrite ? "write" : "read",
      bytes,
      (const void*)p);
  state->fault("access violation", "", pc, message);
  state->stop();
  __builtin_unreachable();
}

__attribute__((noinline, cold)) void
report_outside(Access access, const char* p, size_t bytes, const void* pc) {
  const State& s = *state;
  const Launch& launch = *s.launch;
  const Binding* best = nullptr;
  size_t shortest = ~size_t(0);
  for (const Binding& binding : launch.bindings) {
    if (!binding.name) {
      continue;
    }
    if (binding.buffer < 0) {
      if (p >= binding.address && p < binding.address + kAbsentBytes) {
        return; // may be read; a write ends the launch and says so
      }
      continue;
    }
    const char* view = binding.address - binding.offset;
    const char* end = view + launch.buffers[binding.buffer].bytes;
    size_t distance = p < view ? view - p : p < end ? 0 : p - end;
    if (distance < shortest) {
      shortest = distance;
      best = &binding;
    }
  }
  if (!best) {
    refuse(access, p, bytes, pc);
  }
  const Buffer& b = launch.buffers[best->buffer];
  const Binding& binding = b.views > 1 ? *best : binding_of(b, p);
  report_out_of_bounds(
      access,
      "out-of-bounds device",
      binding.name,
      bytes,
      p - binding.address,
      b.bytes - binding.offset,
      pc);
}

template <Access access>
inline void
check(const void* address, size_t bytes, const void* pc, bool atomic = false) {
  State& s = *state;
  auto* p = static_cast<const char*>(address);
  size_t at = p - s.heap;
  if (at < s.heap_bytes) {
    uint16_t number = s.chunk_buffer[at / kChunk];
    Buffer* b = number ? &s.launch->buffers[number - 1] : nullptr;
    size_t offset = number ? p - b->base : 0;
    uint16_t view = 0;
    if (b && b->views > 1) {
      view = uint16_t(offset / b->stride);
      offset %= b->stride;
    }
    if (!b || offset >= b->bytes || bytes > b->bytes - offset) {
      report_outside(access, p, bytes, pc);
      return;
    }
    if (access == kWrite) {
      b->written += bytes;
      b->low = offset < b->low ? offset : b->low;
      b->high = offset + bytes > b->high ? offset + bytes : b->high;
    } else {
      b->read += bytes;
    }
    if (b->cells) {
      shade_device<access>(*b, p, offset, view, bytes, atomic, pc);
    }
    return;
  }
  if (size_t(p - s.stacks) < s.stacks_bytes) {
    return;
  }
  if (size_t(p - s.arena) < kArenaBytes) {
    access_threadgroup<access>(p, bytes, atomic, pc);
    return;
  }
  if (s.current && !images[0].has(p) && !images[1].has(p)) {
    refuse(access, p, bytes, pc);
  }
}

int find_images(dl_phdr_info* info, size_t, void*) {
  Image image = {~uintptr_t(0), 0};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type == PT_LOAD) {
      uintptr_t from = info->dlpi_addr + header.p_vaddr;
      image.start = from < image.start ? from : image.start;
      image.end =
          from + header.p_memsz > image.end ? from + header.p_memsz : image.end;
    }
  }
  if (image.has(&images)) {
    images[0] = image;
  } else if (image.has(state)) {
    images[1] = image;
  }
  return 0;
}

struct SourceLocation {
  const char* file;
  uint32_t line, column;
};

// What UndefinedBehaviorSanitizer passes. An integer type's info is twice the
// logarithm of its bits, and 1 where it is signed.
struct TypeDescriptor {
  uint16_t kind, info;
  char name[];
};

struct BoundsData {
  SourceLocation location;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

struct TypeMismatchData {
  SourceLocation location;
  const void* type;
  unsigned char log_alignment, kind;
};

void fault_at(
    const char* kind,
    const char* buffer,
    const SourceLocation& location,
    const void* pc,
    const char* message) {
  Site site = {location.file, "", location.line, location.column};
  state->fault_at(kind, buffer, &site, pc, message);
}

// Name of the buffer or the threadgroup variable that an address is in.
const char* name_at(const char* p) {
  const State& s = *state;
  size_t at = p - s.heap;
  if (at < s.heap_bytes && s.chunk_buffer[at / kChunk]) {
    return binding_of(s.launch->buffers[s.chunk_buffer[at / kChunk] - 1], p)
        .name;
  }
  at = p - s.arena;
  uint8_t variable = at < kArenaBytes ? s.arena_variable[at / kArenaUnit] : 0;
  return variable ? s.variables[variable - 1].name : "";
}

} // namespace

} // namespace metalsim

extern "C" {

__attribute__((visibility("default"))) void metalsim_attach(
    metalsim::State* state) {
  metalsim::state = state;
  dl_iterate_phdr(metalsim::find_images, nullptr);
}

#define PC __builtin_return_address(0)
#define ACCESSES(PREFIX, BYTES)                             \
  HIDDEN void __tsan_##PREFIX##read##BYTES(void* p) {       \
    metalsim::check<metalsim::kRead>(p, BYTES, PC);         \
  }                                                         \
  HIDDEN void __tsan_##PREFIX##write##BYTES(void* p) {      \
    metalsim::check<metalsim::kWrite>(p, BYTES, PC);        \
  }                                                         \
  HIDDEN void __tsan_##PREFIX##read_write##BYTES(void* p) { \
    metalsim::check<metalsim::kRead>(p, BYTES, PC);         \
    metalsim::check<metalsim::kWrite>(p, BYTES, PC);        \
  }
ACCESSES(, 1)
ACCESSES(, 2)
ACCESSES(, 4)
ACCESSES(, 8)
ACCESSES(, 16)
ACCESSES(unaligned_, 2)
ACCESSES(unaligned_, 4)
ACCESSES(unaligned_, 8)
ACCESSES(unaligned_, 16)

HIDDEN void __tsan_read_range(void* p, size_t n) {
  metalsim::check<metalsim::kRead>(p, n, PC);
}

HIDDEN void __tsan_write_range(void* p, size_t n) {
  metalsim::check<metalsim::kWrite>(p, n, PC);
}

HIDDEN void* __tsan_memcpy(void* to, const void* from, size_t n) {
  if (n) {
    metalsim::check<metalsim::kRead>(from, n, PC);
    metalsim::check<metalsim::kWrite>(to, n, PC);
  }
  return std::memcpy(to, from, n);
}

HIDDEN void* __tsan_memmove(void* to, const void* from, size_t n) {
  if (n) {
    metalsim::check<metalsim::kRead>(from, n, PC);
    metalsim::check<metalsim::kWrite>(to, n, PC);
  }
  return std::memmove(to, from, n);
}

HIDDEN void* __tsan_memset(void* to, int value, size_t n) {
  if (n) {
    metalsim::check<metalsim::kWrite>(to, n, PC);
  }
  return std::memset(to, value, n);
}

HIDDEN void metalsim_atomic_read(void* to, const void* p, size_t n) {
  if (metalsim::state->check) {
    metalsim::check<metalsim::kRead>(p, n, PC, true);
  }
  std::memcpy(to, p, n);
}

HIDDEN void metalsim_atomic_write(void* p, const void* from, size_t n) {
  if (metalsim::state->check) {
    metalsim::check<metalsim::kWrite>(p, n, PC, true);
  }
  std::memcpy(p, from, n);
}

HIDDEN void __tsan_init() {}
HIDDEN void __tsan_func_entry(void*) {}
HIDDEN void __tsan_func_exit() {}

HIDDEN void __ubsan_handle_out_of_bounds(
    metalsim::BoundsData* data,
    uintptr_t index) {
  char message[160];
  unsigned unused_bits = 64 - (1u << (data->index->info >> 1));
  long value = data->index->info & 1 ? long(index << unused_bits) >> unused_bits
                                     : long(index);
  std::snprintf(
      message, sizeof message, "index %ld of an array is out of bounds", value);
  metalsim::fault_at("out-of-bounds private", "", data->location, PC, message);
  metalsim::state->stop(); // the access would spoil the thread's stack
}

HIDDEN void __ubsan_handle_type_mismatch_v1(
    metalsim::TypeMismatchData* data,
    uintptr_t p) {
  char message[160];
  size_t alignment = size_t(1) << data->log_alignment;
  if (p % alignment == 0) { // g++'s -fsanitize=object-size
    const char* outside = "access outside of a variable";
    metalsim::fault_at(
        "out-of-bounds private", "", data->location, PC, outside);
    metalsim::state->stop();
  }
  std::snprintf(
      message,
      sizeof message,
      "the address is %zu bytes past a multiple of %zu, the alignment of the type",
      size_t(p % alignment),
      alignment);
  const char* name = metalsim::name_at(reinterpret_cast<const char*>(p));
  metalsim::fault_at("misaligned access", name, data->location, PC, message);
}
}
