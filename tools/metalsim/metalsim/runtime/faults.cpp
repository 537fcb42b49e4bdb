// Copyright © 2026 mlx_norms contributors
#include <cstdio>
#include <cstring>

#include "runtime.h"

namespace metalsim {

namespace {

bool same_place(const Fault& fault, const void* pc, const Site* site) {
  if (!site) {
    return fault.pc == pc && !fault.line;
  }
  return fault.line == site->line && fault.column == site->column &&
      !std::strcmp(fault.file, site->file);
}

void add(
    const char* kind,
    const char* buffer,
    const void* pc,
    const Site* site,
    const char* message) {
  Launch& launch = *state.launch;
  for (uint64_t i = 0; i < launch.fault_count; i++) {
    Fault& fault = launch.faults[i];
    if (!std::strcmp(fault.kind, kind) && !std::strcmp(fault.buffer, buffer) &&
        same_place(fault, pc, site)) {
      fault.count++;
      return;
    }
  }
  if (launch.fault_count == kMaxFaults) {
    return;
  }
  Fault& fault = launch.faults[launch.fault_count++];
  fault = {};
  fault.kind = kind;
  fault.count = 1;
  fault.pc = pc;
  fault.file = site ? site->file : "";
  fault.line = site ? site->line : 0;
  fault.column = site ? site->column : 0;
  fault.thread = state.current ? state.current->thread : 0;
  fault.group = state.group_position;
  std::snprintf(fault.buffer, sizeof fault.buffer, "%s", buffer);
  std::snprintf(fault.message, sizeof fault.message, "%s", message);
}

} // namespace

void report(
    const char* kind,
    const char* buffer,
    const void* pc,
    const char* message) {
  add(kind, buffer, pc, nullptr, message);
}

void report_at(
    const char* kind,
    const char* buffer,
    const Site* site,
    const void* pc,
    const char* message) {
  add(kind, buffer, pc, site, message);
}

} // namespace metalsim
