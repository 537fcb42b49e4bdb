// Copyright © 2026 mlx_norms contributors
//
// What became of each norm that a patched model asked for, counted by outcome.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mlx_norms {

enum class Outcome {
  Fused,
  // Computed by a kernel of ours, the sum apart.
  FusionOff,
  LeftToGraphPass,
  NotASum,
  OtherStream,
  OperandRepeated,
  ParameterOfSum,
  ParameterGraphLong,
  ParameterTraced,
  ParameterOfTransform,
  FusedNoKernel,
  // Passed on to mx.fast.
  DtypeNotTaken,
  ArgumentsNotTaken,
  NoKernel,
};

constexpr int kOutcomes = static_cast<int>(Outcome::NoKernel) + 1;

// As the report words it.
const char* text(Outcome outcome);

bool is_passed_on(Outcome outcome);

// Counts of the process, kept by all threads.
struct PatchCounts {
  std::array<int64_t, kOutcomes> outcomes; // by Outcome
  int64_t offsets;     // calls whose c + w became a weight offset
  int64_t graph_pass;  // sums that a graph pass has fused
  int64_t projections; // norms computed with the products that take them
};

void count(Outcome outcome);
void count_offset();
void count_graph_pass(int sums);
void count_projections(int norms);
PatchCounts patch_counts();
void reset_patch_counts();

} // namespace mlx_norms
