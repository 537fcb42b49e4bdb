// Copyright © 2026 mlx_norms contributors
// Device memory: a buffer's copy has pages of its own, with guard pages behind.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime.h"

namespace metalsim {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHeapBytes = size_t(1) << 36;
constexpr size_t kAbsentChunks = kMaxBindings * kAbsentBytes / kChunk + 1;
constexpr size_t kKeptBytes = size_t(256) << 20; // more goes back to the system
constexpr size_t kCellBlock = size_t(16) << 20;
constexpr unsigned char kPoison = 0xff; // NaN in every float format

uint8_t* open_pages; // of each chunk, the leading pages that can be accessed

struct CellBlock {
  Cell* cells;
  size_t capacity, used;
};
CellBlock cell_blocks[64];
size_t cell_block_count;

void* reserve(size_t bytes, int protection) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* p = mmap(nullptr, bytes, protection, flags, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("metalsim: cannot reserve memory");
    std::abort();
  }
  return p;
}

// Leaves the first `pages` pages of `chunks` chunks accessible, and no others.
void set_open(size_t first, size_t chunks, size_t pages) {
  constexpr size_t per_chunk = kChunk / kPage;
  bool as_it_is = true;
  for (size_t i = 0; i < chunks; i++) {
    size_t open = pages > i * per_chunk ? pages - i * per_chunk : 0;
    open = open < per_chunk ? open : per_chunk;
    as_it_is &= open_pages[first + i] == open;
    open_pages[first + i] = uint8_t(open);
  }
  if (as_it_is) {
    return;
  }
  char* base = state.heap + first * kChunk;
  size_t body = pages * kPage;
  if (body) {
    mprotect(base, body, PROT_READ | PROT_WRITE);
  }
  mprotect(base + body, chunks * kChunk - body, PROT_NONE);
}

void map(char* at, size_t bytes, int how, int file) {
  int both = PROT_READ | PROT_WRITE;
  if (mmap(at, bytes, both, MAP_FIXED | how, file, 0) == MAP_FAILED) {
    std::perror("metalsim: cannot map memory");
    std::abort();
  }
}

// Makes the views of a buffer, whose pages are open, the same memory.
void join_views(const Buffer& buffer, size_t bytes) {
  int file = memfd_create("metalsim", 0);
  if (file < 0 || ftruncate(file, off_t(bytes))) {
    std::perror("metalsim: cannot make memory to share");
    std::abort();
  }
  for (uint32_t view = 0; view < buffer.views; view++) {
    map(buffer.base + view * buffer.stride, bytes, MAP_SHARED, file);
  }
  close(file);
}

void part_views(const Buffer& buffer, size_t bytes) {
  for (uint32_t view = 0; view < buffer.views; view++) {
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    map(buffer.base + view * buffer.stride, bytes, how, -1);
  }
}

size_t page_bytes(const Buffer& buffer) {
  return (buffer.bytes + kPage - 1) / kPage * kPage;
}

bool whole_slack_untouched(const Buffer& buffer) {
  for (size_t i = buffer.bytes; i < page_bytes(buffer); i++) {
    if (static_cast<unsigned char>(buffer.base[i]) != kPoison) {
      return false;
    }
  }
  return true;
}

const char* name_of(const Launch& launch, const Buffer& buffer) {
  for (const Binding& binding : launch.bindings) {
    if (binding.name && binding.buffer == &buffer - launch.buffers) {
      return binding.name;
    }
  }
  return "";
}

} // namespace

void reserve_memory() {
  state.heap_bytes = kHeapBytes;
  state.heap = static_cast<char*>(reserve(kHeapBytes, PROT_NONE));
  int both = PROT_READ | PROT_WRITE;
  state.chunk_buffer =
      static_cast<uint16_t*>(reserve(kHeapBytes / kChunk * 2, both));
  open_pages = static_cast<uint8_t*>(reserve(kHeapBytes / kChunk, both));
  state.arena = static_cast<char*>(reserve(kArenaBytes, both));
  state.arena_cells =
      static_cast<Cell*>(reserve(kArenaBytes * sizeof(Cell), both));
  state.arena_shift = 2;
  // Arguments that function constants leave out can be read, as poison: Metal's
  // compiler drops the loads whose values are not used.
  mprotect(state.heap, kMaxBindings * kAbsentBytes, both);
  std::memset(state.heap, kPoison, kMaxBindings * kAbsentBytes);
  mprotect(state.heap, kMaxBindings * kAbsentBytes, PROT_READ);
}

Cell* new_cells(size_t count) {
  for (size_t i = 0; i < cell_block_count; i++) {
    CellBlock& block = cell_blocks[i];
    if (block.capacity - block.used >= count) {
      block.used += count;
      return block.cells + block.used - count;
    }
  }
  if (cell_block_count == sizeof cell_blocks / sizeof *cell_blocks) {
    report(
        "out of memory",
        "",
        nullptr,
        "the launch needs too much shadow memory");
    state.stop();
  }
  size_t capacity = count > kCellBlock ? count : kCellBlock;
  auto* cells = static_cast<Cell*>(
      reserve(capacity * sizeof(Cell), PROT_READ | PROT_WRITE));
  cell_blocks[cell_block_count++] = {cells, capacity, count};
  return cells;
}

void forget_cells() {
  madvise(state.arena_cells, kArenaBytes * sizeof(Cell), MADV_DONTNEED);
  for (size_t i = 0; i < cell_block_count; i++) {
    madvise(
        cell_blocks[i].cells,
        cell_blocks[i].capacity * sizeof(Cell),
        MADV_DONTNEED);
  }
}

void place_buffers(Launch& launch) {
  static size_t used_chunks;
  std::memset(state.chunk_buffer, 0, used_chunks * sizeof *state.chunk_buffer);
  size_t kept = 0;
  for (size_t i = 0; i < cell_block_count; i++) {
    CellBlock& block = cell_blocks[i];
    if ((kept += block.capacity * sizeof(Cell)) > kKeptBytes) {
      madvise(block.cells, block.capacity * sizeof(Cell), MADV_DONTNEED);
    }
    block.used = 0;
  }
  if (used_chunks * kChunk > kKeptBytes) {
    madvise(state.heap, used_chunks * kChunk, MADV_DONTNEED);
  }

  for (uint64_t i = 0; i < launch.buffer_count; i++) {
    launch.buffers[i].views = 0;
  }
  for (const Binding& binding : launch.bindings) {
    if (binding.buffer >= 0) {
      launch.buffers[binding.buffer].views++;
    }
  }
  size_t chunk = kAbsentChunks;
  for (uint64_t i = 0; i < launch.buffer_count; i++) {
    Buffer& buffer = launch.buffers[i];
    size_t pages = page_bytes(buffer) / kPage;
    size_t chunks = pages * kPage / kChunk + 1;
    buffer.views = launch.check > 1 && pages ? buffer.views : 1;
    buffer.stride = chunks * kChunk;
    if ((chunk + chunks * buffer.views) * kChunk > kHeapBytes) {
      report(
          "out of memory",
          "",
          nullptr,
          "the buffers of the launch are too large");
      state.stop();
    }
    buffer.base = state.heap + chunk * kChunk;
    for (uint32_t view = 0; view < buffer.views; view++) {
      set_open(chunk, chunks, pages);
      for (size_t c = 0; c < chunks; c++) {
        state.chunk_buffer[chunk++] = uint16_t(i + 1);
      }
    }
    if (buffer.views > 1) {
      join_views(buffer, page_bytes(buffer));
    }
    if (buffer.initialized) {
      std::memcpy(buffer.base, buffer.host, buffer.bytes);
    } else {
      std::memset(buffer.base, kPoison, buffer.bytes);
    }
    std::memset(
        buffer.base + buffer.bytes, kPoison, pages * kPage - buffer.bytes);
    buffer.low = ~uint64_t(0);
    buffer.high = 0;
    buffer.shift = 4;
    buffer.touched = 0;
    buffer.cells = launch.check > 1
        ? new_cells((buffer.bytes >> buffer.shift) + 1)
        : nullptr;
  }
  used_chunks = chunk;

  uint32_t views[kMaxBindings] = {}; // by buffer, of which there are no more
  for (uint32_t i = 0; i < kMaxBindings; i++) {
    Binding& binding = launch.bindings[i];
    if (binding.buffer < 0) {
      binding.address = state.heap + i * kAbsentBytes;
    } else {
      const Buffer& buffer = launch.buffers[binding.buffer];
      uint32_t view = views[binding.buffer]++ % buffer.views;
      binding.address = buffer.base + view * buffer.stride + binding.offset;
    }
    state.bindings[i] = binding.address;
  }
}

void return_buffers(Launch& launch) {
  for (uint64_t i = 0; i < launch.buffer_count; i++) {
    Buffer& buffer = launch.buffers[i];
    if (!buffer.base) {
      continue; // the launch was stopped before it was placed
    }
    if (!launch.check) {
      if (!whole_slack_untouched(buffer)) {
        report(
            "out-of-bounds device",
            name_of(launch, buffer),
            nullptr,
            "bytes behind the end of the buffer were written");
      }
      if (buffer.writable) {
        std::memcpy(buffer.host, buffer.base, buffer.bytes);
      }
    } else if (buffer.writable && buffer.low < buffer.high) {
      std::memcpy(
          buffer.host + buffer.low,
          buffer.base + buffer.low,
          buffer.high - buffer.low);
    }
    if (buffer.views > 1) {
      part_views(buffer, page_bytes(buffer));
    }
  }
}

void report_unwritten(Launch& launch) {
  for (uint64_t i = 0; i < launch.buffer_count; i++) {
    Buffer& buffer = launch.buffers[i];
    size_t unwritten = 0, first = 0;
    for (size_t byte = buffer.must_start; byte < buffer.must_stop;) {
      size_t cell = byte >> buffer.shift;
      size_t next = (cell + 1) << buffer.shift;
      next = next < buffer.must_stop ? next : buffer.must_stop;
      if (!buffer.touched ||
          buffer.cells[cell].write_epoch < state.device_clock.launch) {
        first = unwritten ? first : byte;
        unwritten += next - byte;
      }
      byte = next;
    }
    if (unwritten) {
      char message[160];
      std::snprintf(
          message,
          sizeof message,
          "%zu of %zu bytes of the output are not written, the first of them byte %zu",
          unwritten,
          size_t(buffer.must_stop - buffer.must_start),
          size_t(first - buffer.must_start));
      report("unwritten output", name_of(launch, buffer), nullptr, message);
    }
  }
}

Nearest nearest_binding(const char* address) {
  const Launch& launch = *state.launch;
  size_t at = address - state.heap;
  if (at < kMaxBindings * kAbsentBytes) {
    const Binding& binding = launch.bindings[at / kAbsentBytes];
    return {
        binding.name ? binding.name : "", long(at % kAbsentBytes), 0, false};
  }
  Nearest best = {"", 0, 0, true};
  size_t shortest = ~size_t(0);
  for (const Binding& binding : launch.bindings) {
    if (!binding.name || binding.buffer < 0) {
      continue;
    }
    const Buffer& buffer = launch.buffers[binding.buffer];
    const char* end = binding.address - binding.offset + buffer.bytes;
    size_t distance = address < binding.address ? binding.address - address
        : address < end                         ? 0
                                                : address - end;
    if (distance < shortest) {
      shortest = distance;
      best = {
          binding.name,
          address - binding.address,
          size_t(end - binding.address),
          true};
    }
  }
  return best;
}

} // namespace metalsim
