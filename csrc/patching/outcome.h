// Copyright © 2026 mlx_norms contributors
//
// How each norm that a patched model asked for was computed, counted by
// outcome.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/common/types.h"

namespace mlx_norms {

enum class Outcome {
  Alone, // as every call of ours, until a pass finds more
  Fused,
  WithOthers, // than an addition
  // Computed by a kernel of ours, separately from the sum.
  OtherStream,
  OperandRepeated,
  ParameterOfSum,
  ParameterGraphLong,
  ParameterTraced,
  FusedNoKernel,
  Groups, // a group, instance or batch norm
  // Passed on to mx.fast.
  DtypeNotTaken,
  ArgumentsNotTaken,
  MlxTooOld,
  NoKernel,
};

// What a graph pass took besides sums.
enum class Taken {
  // Norms written in operations.
  RmsNorm,
  LayerNorm,
  L2Norm,
  // What stands before or after a norm.
  Cast,
  ScaleAndShift,
  Gate,
  GateFirst,
  Activation,
  NormBefore,
  GroupParameters,
  SideBySide, // for each norm that joined another's launch
};

constexpr int kTaken = static_cast<int>(Taken::SideBySide) + 1;

// The kind's text in the report.
const char* text(Taken taken);

bool is_written(Taken taken);

constexpr int kOutcomes = static_cast<int>(Outcome::NoKernel) + 1;

// The outcome's text in the report.
const char* text(Outcome outcome);

bool is_passed_on(Outcome outcome);

// Counts of the process, over all threads.
struct PatchCounts {
  std::array<int64_t, kOutcomes> outcomes; // by Outcome
  int64_t offsets;     // calls whose c + w became a weight offset
  int64_t graph_pass;  // sums fused with norms that are no patched call's
  int64_t projections; // norms fused with the matmuls that use them
  int64_t products;    // other quantized products by our kernel
  int64_t ropes;       // norms computed with the rope after them
  int64_t rope_pairs;  // pairs of these in one launch
  std::array<int64_t, kTaken> taken; // by Taken
};

void count(Outcome outcome);

// Notes on a norm's node that its call has been counted as alone.
void mark_counted(const array& normalized);

// Whether it is so noted, and no pass has counted it otherwise since.
bool is_counted(const array& normalized);

// Counts it as this instead, if it is; returns whether it was.
bool recount(const array& normalized, Outcome outcome);

void count_offset();
void count_graph_pass(int sums);
void count(Taken taken);
void count_projections(int norms);
void count_products(int products);
void count_rope(bool joins_another);
PatchCounts patch_counts();
void reset_patch_counts();

} // namespace mlx_norms
