// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/report.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "csrc/patching/pending.h"

namespace mlx_norms {

namespace {

using enum Section;

constexpr std::array<ReportLine, kCounted> kLines = {{
    {Calls, "norm alone"},
    {Calls, "fused with the addition before it"},
    {Calls, "fused with what else stands around it"},
    {Calls, "norm alone: the addition before it is on another stream"},
    {Calls, "norm alone: the addition before it broadcasts along the row"},
    {Calls, "norm alone: its weight or bias is computed from the addition"},
    {Calls, "norm alone: its weight or bias is pending, by many operations"},
    {Calls, "norm alone: its weight or bias is traced, the addition is not"},
    {Calls, "norm alone: the kernel that adds has failed its check"},
    {Calls, "norm alone: group, instance and batch norms take no addition"},
    {PassedOn, "left to MLX: not float32, float16 or bfloat16"},
    {PassedOn, "left to MLX: shapes or options that no kernel takes"},
    {PassedOn, "left to MLX: kernels on CUDA need MLX 0.32.4 or newer"},
    {PassedOn, "left to MLX: its kernel has failed its check"},
    {Written, "rms_norm"},
    {Written, "layer_norm"},
    {Written, "l2_norm"},
    {Written, "group_norm"},
    {Around, "a cast after a norm"},
    {Around, "1 + scale and shift after a norm"},
    {Around, "an activated gate after a norm"},
    {Around, "a gate or a weight before a norm"},
    {Around, "an activation after a norm"},
    {Around, "a norm before the addition"},
    {Around, "weight and bias after a group norm"},
    {Around, "a norm beside another, in its launch"},
    {Numbers, "offsets"},
    {Numbers, "fused"}, // with the calls that are
    {Numbers, "projections"},
    {Numbers, "products"},
    {Numbers, "ropes"},
    {Numbers, "rope_pairs"},
}};

std::array<std::atomic<int64_t>, kCounted> counts;
std::atomic<uint32_t> period = 1; // of counts, until they are reset

// What a call's node notes: how it is counted, and in which period.
uint32_t note_of(Counted counted) {
  return period << 8 | static_cast<uint32_t>(counted);
}

Counted counted_by(uint32_t note) {
  return static_cast<Counted>(note & 0xff);
}

// Whether it is of this period, and of a norm that no pass has fused yet.
bool may_move(uint32_t note) {
  auto counted = counted_by(note);
  return note == note_of(counted) && counted != Counted::Fused &&
      counted != Counted::WithOthers;
}

} // namespace

ReportLine line_of(Counted counted) {
  return kLines[static_cast<int>(counted)];
}

int64_t count_of(Counted counted) {
  return std::max<int64_t>(counts[static_cast<int>(counted)], 0);
}

void count(Counted counted, int times) {
  counts[static_cast<int>(counted)].fetch_add(times, std::memory_order_relaxed);
}

void reset_counts() {
  ++period;
  for (auto& each : counts) {
    each = 0;
  }
}

void mark_counted(const array& normalized) {
  node_of(normalized)->counted_as = note_of(Counted::Alone);
}

bool is_call(const array& normalized) {
  auto* node = node_of(normalized);
  return node && node->counted_as != 0;
}

bool is_counted(const array& normalized) {
  return !is_call(normalized) || may_move(node_of(normalized)->counted_as);
}

bool recount(const array& normalized, Counted counted) {
  auto* node = node_of(normalized);
  auto note = node ? node->counted_as.load() : 0;
  if (!may_move(note) ||
      !node->counted_as.compare_exchange_strong(note, note_of(counted))) {
    return false;
  }
  count(counted_by(note), -1);
  count(counted);
  return true;
}

} // namespace mlx_norms
