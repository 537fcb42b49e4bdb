// Copyright © 2026 mlx_norms contributors
// What the runtime and the compiled libraries share: one State.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metalsim {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxSimdgroups = kMaxThreads / kLanes;
constexpr uint32_t kMaxBindings = 31;
constexpr uint32_t kMaxFaults = 64;
constexpr uint32_t kMaxVariables = 255;
constexpr size_t kThreadgroupLimit = 32768;
constexpr size_t kArenaBytes = 256 * 1024; // kernels over the limit still run
constexpr size_t kArenaUnit = 16;
constexpr size_t kChunk = 64 * 1024;
constexpr size_t kAbsentBytes = 4096; // readable of an argument left out

struct Dim {
  uint32_t x, y, z;
};

// A place in the source; laid out as std::source_location's record.
struct Site {
  const char* file;
  const char* function;
  uint32_t line, column;
};

// A call, under way, of a function that waits for other threads.
struct Call {
  const Site* site;
  const Call* outer;
};

struct Fault {
  const char* kind;
  uint32_t count;
  uint32_t line, column; // 0: to be looked up from pc
  const char* file;
  const void* pc;
  uint32_t thread;
  Dim group;
  char buffer[64];
  char message[200];
};

// The last accesses to some bytes. Epochs count the barriers that order them.
struct Cell {
  uint32_t write_epoch, read_epoch;
  uint16_t writer, reader;        // thread and the flags of cells.h
  uint16_t write_turn, read_turn; // simdgroup_barriers passed by then
};

// Barriers passed
struct Clock {
  uint32_t now;
  uint32_t group;  // when the running threadgroup began
  uint32_t launch; // when the launch began
};

struct Buffer {
  char* host;
  uint64_t bytes;
  uint32_t initialized, writable;
  uint64_t must_start, must_stop; // bytes that the launch has to write
  uint64_t read, written;         // bytes requested
  char* base;
  Cell* cells;
  uint64_t low, high; // range of the bytes written
  uint32_t shift;     // log2 of the bytes a cell stands for
  uint32_t touched;
  // Arguments that share it have an address each where accesses are told apart.
  uint64_t stride; // from one of them to the next
  uint32_t views;  // how many there are, or 1
};

struct Binding {
  const char* name;
  int64_t buffer; // -1: nothing bound
  uint64_t offset;
  char* address;
};

struct Launch {
  void (*kernel)();
  uint32_t grid[3], group[3];
  uint32_t nonuniform, check, order;
  float fast_error; // of metal::fast, in what Metal permits
  uint64_t buffer_count;
  Buffer* buffers;
  Binding bindings[kMaxBindings];
  const char* threadgroup_names[kMaxBindings];
  uint64_t threadgroup_bytes[kMaxBindings];
  uint64_t threads, threadgroups, barriers, simd_ops, threadgroup_used;
  uint64_t fault_count;
  Fault faults[kMaxFaults];
};

enum Operation : uint32_t { kReduce, kShuffle, kVote, kMatrix, kSimdBarrier };
using Combine = void (*)(void** slots, uint32_t active);

struct Simdgroup {
  uint32_t exist, live, arrived, held, ran_through; // masks by lane
  uint32_t pending; // lanes of an operation that the resumed lane is to finish
  uint32_t ready;   // mask by place in the schedule
  uint32_t operation;
  bool uniform; // the lanes that have arrived are all at one place
  Combine combine;
  const Site* site;
  uint16_t turn[2]; // simdgroup_barriers passed: threadgroup, device memory
  const Call* calls;
  void* slots[kLanes];
  const Site* at[kLanes];
  const Call* called[kLanes];
  Combine doing[kLanes];
};

struct Fiber {
  void* stack_pointer; // null: not begun
  Simdgroup* simdgroup;
  const Call* calls; // the innermost one
  uint32_t thread, lane, index, stack;
  Dim position;
};

struct Variable {
  const void* tag;
  const char* name;
  char* address;
  size_t bytes;
};

struct State {
  // Device memory: a reserved range in chunks, each of at most one buffer.
  char* heap;
  size_t heap_bytes;
  uint16_t* chunk_buffer; // buffer's number + 1
  char* stacks;
  size_t stacks_bytes;
  // Threadgroup memory
  char* arena;
  Cell* arena_cells;
  uint32_t arena_shift;
  uint8_t arena_variable[kArenaBytes / kArenaUnit]; // variable's number + 1
  Variable variables[kMaxVariables];
  uint32_t variable_count;
  size_t arena_used;

  Launch* launch;
  Fiber* current;
  uint32_t check;
  Clock threadgroup_clock, device_clock;

  Dim group_position, group_size, group_count, grid_size, nominal_size;
  uint32_t simdgroup_count;
  void* bindings[kMaxBindings];
  void* threadgroup_arguments[kMaxBindings];

  void (*collective)(
      uint32_t operation,
      const Site* site,
      Combine combine,
      void* slot);
  void (*simdgroup_barrier)(uint32_t flags, const Site* site);
  void (*threadgroup_barrier)(uint32_t flags, const Site* site);
  // A lane reads another that takes no part.
  void (*inactive_lane)(uint32_t lane, uint32_t read);
  void* (*threadgroup_variable)(
      const void* tag,
      size_t bytes,
      size_t align,
      const char* name);
  Cell* (*new_cells)(size_t count);
  void (*fault)(
      const char* kind,
      const char* buffer,
      const void* pc,
      const char* message);
  void (*fault_at)(
      const char* kind,
      const char* buffer,
      const Site* site,
      const void* pc,
      const char* message);
  void (*stop)(); // does not return
};

} // namespace metalsim
