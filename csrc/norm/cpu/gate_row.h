// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/cpu/activation_table.h"
#include "csrc/norm/cpu/rows.h"

namespace {

template <typename Job>
bool is_worth_a_table(const Job& job) {
  return !is_cheap(job.activation) && job.in[kGate].step == 1 &&
      job.rows * job.width >= kElementsForTable;
}

// F's table for a job's gate of T; null if its values are to be computed.
template <typename T, typename F>
const typename F::Result* gate_table(const NormJob& job) {
  return is_worth_a_table(job) ? table_of<T, F>() : nullptr;
}

// F of a row of the gate.
template <typename T, typename F>
struct GateRow {
  Row<T> gate;
  const typename F::Result* table;

  Floats operator()(int64_t i, Whole extent) const {
    if constexpr (sizeof(T) == 2) {
      if (table) {
        return look_up(table, gate.data + i);
      }
    }
    return F{}(gate(i, extent));
  }
  Floats operator()(int64_t i, Part extent) const {
    return F{}(gate(i, extent));
  }
};

} // namespace
