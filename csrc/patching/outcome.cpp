// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/outcome.h"

#include <algorithm>
#include <atomic>

#include "csrc/patching/pending.h"

namespace mlx_norms {

namespace {

std::array<std::atomic<int64_t>, kOutcomes> outcomes;
std::atomic<int64_t> offsets;
std::atomic<int64_t> graph_pass;
std::atomic<int64_t> projections;
std::atomic<int64_t> products;
std::atomic<int64_t> ropes;
std::atomic<int64_t> rope_pairs;
std::array<std::atomic<int64_t>, kTaken> takens;
std::atomic<uint32_t> period = 1; // of counts, until they are reset

// Null: it is no norm's of this package.
const Node<Norm>* node_of(const array& normalized) {
  return op_of<Norm>(normalized)
      ? static_cast<const Node<Norm>*>(&normalized.primitive())
      : nullptr;
}

} // namespace

const char* text(Outcome outcome) {
  switch (outcome) {
    case Outcome::Alone:
      return "norm alone";
    case Outcome::Fused:
      return "fused with the addition before it";
    case Outcome::WithOthers:
      return "fused with what else stands around it";
    case Outcome::OtherStream:
      return "norm alone: the addition before it is on another stream";
    case Outcome::OperandRepeated:
      return "norm alone: the addition before it broadcasts along the row";
    case Outcome::ParameterOfSum:
      return "norm alone: its weight or bias is computed from the addition";
    case Outcome::ParameterGraphLong:
      return "norm alone: its weight or bias is pending, by many operations";
    case Outcome::ParameterTraced:
      return "norm alone: its weight or bias is traced, the addition is not";
    case Outcome::FusedNoKernel:
      return "norm alone: the kernel that adds has failed its check";
    case Outcome::Groups:
      return "norm alone: group, instance and batch norms take no addition";
    case Outcome::DtypeNotTaken:
      return "left to MLX: not float32, float16 or bfloat16";
    case Outcome::ArgumentsNotTaken:
      return "left to MLX: shapes or options that no kernel takes";
    case Outcome::MlxTooOld:
      return "left to MLX: kernels on CUDA need MLX 0.32.4 or newer";
    case Outcome::NoKernel:
      return "left to MLX: its kernel has failed its check";
  }
  return "";
}

const char* text(Taken taken) {
  switch (taken) {
    case Taken::RmsNorm:
      return "rms_norm";
    case Taken::LayerNorm:
      return "layer_norm";
    case Taken::L2Norm:
      return "l2_norm";
    case Taken::Cast:
      return "a cast after a norm";
    case Taken::ScaleAndShift:
      return "1 + scale and shift after a norm";
    case Taken::Gate:
      return "an activated gate after a norm";
    case Taken::GateFirst:
      return "an activated gate before a norm";
    case Taken::Activation:
      return "an activation after a norm";
    case Taken::NormBefore:
      return "a norm before the addition";
    case Taken::GroupParameters:
      return "weight and bias after a group norm";
    case Taken::SideBySide:
      return "a norm beside another, in its launch";
  }
  return "";
}

bool is_written(Taken taken) {
  return taken <= Taken::L2Norm;
}

bool is_passed_on(Outcome outcome) {
  return outcome >= Outcome::DtypeNotTaken;
}

void count(Outcome outcome) {
  outcomes[static_cast<int>(outcome)].fetch_add(1, std::memory_order_relaxed);
}

void mark_counted(const array& normalized) {
  node_of(normalized)->counted_in = period.load();
}

bool is_counted(const array& normalized) {
  auto* node = node_of(normalized);
  return node && node->counted_in == period;
}

bool recount(const array& normalized, Outcome outcome) {
  auto* node = node_of(normalized);
  if (!node || node->counted_in.exchange(0) != period) {
    return false;
  }
  outcomes[static_cast<int>(Outcome::Alone)].fetch_sub(1);
  count(outcome);
  return true;
}

void count_offset() {
  offsets.fetch_add(1, std::memory_order_relaxed);
}

void count_graph_pass(int sums) {
  graph_pass.fetch_add(sums, std::memory_order_relaxed);
}

void count(Taken taken) {
  takens[static_cast<int>(taken)].fetch_add(1, std::memory_order_relaxed);
}

void count_projections(int norms) {
  projections.fetch_add(norms, std::memory_order_relaxed);
}

void count_products(int number) {
  products.fetch_add(number, std::memory_order_relaxed);
}

void count_rope(bool joins_another) {
  ropes.fetch_add(1, std::memory_order_relaxed);
  rope_pairs.fetch_add(joins_another, std::memory_order_relaxed);
}

PatchCounts patch_counts() {
  PatchCounts counts;
  for (int i = 0; i < kOutcomes; ++i) {
    counts.outcomes[i] = std::max<int64_t>(outcomes[i], 0);
  }
  counts.offsets = offsets;
  counts.graph_pass = graph_pass;
  counts.projections = projections;
  counts.products = products;
  counts.ropes = ropes;
  counts.rope_pairs = rope_pairs;
  for (int i = 0; i < kTaken; ++i) {
    counts.taken[i] = takens[i];
  }
  return counts;
}

void reset_patch_counts() {
  ++period;
  for (auto& outcome : outcomes) {
    outcome = 0;
  }
  offsets = 0;
  graph_pass = 0;
  projections = 0;
  products = 0;
  ropes = 0;
  rope_pairs = 0;
  for (auto& taken : takens) {
    taken = 0;
  }
}

} // namespace mlx_norms
