// Copyright © 2026 mlx_norms contributors
// What a cell remembers of the accesses to its bytes, and which of them race.
#pragma once

#include "state.h"

namespace metalsim {

namespace {

// A cell's writer and reader: the thread's number and these flags.
constexpr uint16_t kThread = 0x3ff;
constexpr uint16_t kManyLanes = 0x0400; // of one SIMD-group
constexpr uint16_t kManySimdgroups = 0x0800;
constexpr uint16_t kOtherThreadgroup = 0x1000; // some reader was in another one
constexpr uint16_t kAtomic = 0x8000;           // all these accesses were atomic
// Of a writer: the number of the argument, among those that share the buffer.
constexpr uint16_t kView = 0x7c00;
constexpr int kViewShift = 10;
static_assert(kMaxBindings <= (kView >> kViewShift) + 1);

struct Conflict {
  const char* with; // null: none
  int thread;       // -1: several or in another threadgroup
  bool other_threadgroup;
};

bool same_simdgroup(uint16_t a, uint16_t b) {
  return (a & kThread) / kLanes == (b & kThread) / kLanes;
}

// One memory in which the running thread accesses cells.
struct Memory {
  const Clock& clock;
  uint32_t valid; // cells of earlier epochs are blank
  uint16_t me, turn;
  uint16_t view; // that the access goes through
};

bool conflicts_with_write(const Cell& c, const Memory& m, bool atomic) {
  if (c.write_epoch < m.valid || (atomic && c.writer & kAtomic)) {
    return false;
  }
  if (c.write_epoch < m.clock.group) {
    return true;
  }
  return c.write_epoch == m.clock.now && (c.writer & kThread) != m.me &&
      !(same_simdgroup(c.writer, m.me) && c.write_turn != m.turn);
}

bool conflicts_with_read(const Cell& c, const Memory& m, bool atomic) {
  if (c.read_epoch < m.valid || (atomic && c.reader & kAtomic)) {
    return false;
  }
  if (c.reader & kOtherThreadgroup || c.read_epoch < m.clock.group) {
    return true;
  }
  if (c.read_epoch != m.clock.now) {
    return false;
  }
  if (c.reader & kManySimdgroups || !same_simdgroup(c.reader, m.me)) {
    return true;
  }
  return c.read_turn == m.turn &&
      (c.reader & kManyLanes || (c.reader & kThread) != m.me);
}

Conflict of_write(const Cell& c, const Memory& m) {
  bool other = c.write_epoch < m.clock.group;
  return {"a write", other ? -1 : c.writer & kThread, other};
}

Conflict of_read(const Cell& c, const Memory& m) {
  bool other = c.reader & kOtherThreadgroup || c.read_epoch < m.clock.group;
  bool many = c.reader & (kManyLanes | kManySimdgroups);
  return {"a read", other || many ? -1 : c.reader & kThread, other};
}

Conflict note_read(Cell& c, const Memory& m, bool atomic) {
  uint16_t flag = atomic ? kAtomic : 0;
  Conflict conflict = {};
  if (conflicts_with_write(c, m, atomic)) {
    conflict = of_write(c, m);
  }
  uint16_t other = 0;
  if (c.read_epoch >= m.valid) {
    other = c.reader & kOtherThreadgroup;
    if (c.read_epoch < m.clock.group) {
      other = kOtherThreadgroup;
    }
  }
  if (c.read_epoch == m.clock.now) {
    uint16_t both_atomic = c.reader & flag;
    if (c.reader & kManySimdgroups) {
      c.reader = (c.reader & ~kAtomic) | both_atomic;
      return conflict;
    }
    if (!same_simdgroup(c.reader, m.me)) {
      c.reader = (c.reader & ~kAtomic) | kManySimdgroups | both_atomic;
      return conflict;
    }
    if (c.read_turn == m.turn) {
      uint16_t many = (c.reader & kThread) == m.me ? 0 : kManyLanes;
      c.reader = (c.reader & ~kAtomic) | many | both_atomic;
      return conflict;
    }
  }
  c.read_epoch = m.clock.now;
  c.read_turn = m.turn;
  c.reader = m.me | other | flag;
  return conflict;
}

Conflict note_write(Cell& c, const Memory& m, bool atomic) {
  Conflict conflict = {};
  if (conflicts_with_write(c, m, atomic)) {
    conflict = of_write(c, m);
  } else if (conflicts_with_read(c, m, atomic)) {
    conflict = of_read(c, m);
  }
  c.write_epoch = m.clock.now;
  c.write_turn = m.turn;
  c.writer = m.me | m.view << kViewShift | (atomic ? kAtomic : 0);
  return conflict;
}

// Makes each cell stand for `1 << to` bytes where it stood for `1 << from`.
void split_cells(
    Cell* into,
    const Cell* cells,
    size_t count,
    uint32_t from,
    uint32_t to) {
  size_t parts = size_t(1) << (from - to);
  for (size_t i = count; i-- > 0;) {
    Cell cell = cells[i];
    for (size_t k = 0; k < parts; k++) {
      into[i * parts + k] = cell;
    }
  }
}

uint32_t granule(size_t offset, size_t bytes, uint32_t shift) {
  size_t low = offset | bytes | (size_t(1) << shift);
  return __builtin_ctzll(low);
}

enum Access { kRead, kWrite };

// What a range of cells shows when it is accessed.
struct Found {
  Conflict conflict;
  bool blank;    // a byte that is read was never written
  int view = -1; // another one, through which such a byte was written
};

template <Access access>
Found note(Cell* cell, const Cell* end, const Memory& m, bool atomic) {
  Found found = {};
  for (; cell < end; cell++) {
    Conflict conflict;
    if (access == kRead) {
      bool blank = cell->write_epoch < m.valid;
      int view = (cell->writer & kView) >> kViewShift;
      found.blank |= blank;
      found.view = blank || view == m.view ? found.view : view;
      conflict = note_read(*cell, m, atomic);
    } else {
      conflict = note_write(*cell, m, atomic);
    }
    if (conflict.with) {
      found.conflict = conflict;
    }
  }
  return found;
}

} // namespace

} // namespace metalsim
