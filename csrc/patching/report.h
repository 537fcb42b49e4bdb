// Copyright © 2026 mlx_norms contributors
//
// How each norm that a patched model asked for was computed, and what passes
// took: the counts of the process, over all threads.

#pragma once

#include <cstdint>

#include "csrc/common/types.h"

namespace mlx_norms {

// A line of the report; report.cpp has its text.
enum class Counted {
  // A call of a norm. Each is alone until a pass finds more.
  Alone,
  Fused,
  WithOthers, // than an addition
  OtherStream,
  OperandRepeated,
  ParameterOfSum,
  ParameterGraphLong,
  ParameterTraced,
  FusedNoKernel,
  Groups, // a group, instance or batch norm
  // A call that was passed on to MLX.
  DtypeNotTaken,
  ArgumentsNotTaken,
  MlxTooOld,
  NoKernel,
  // A norm written in operations.
  RmsNorm,
  LayerNorm,
  L2Norm,
  GroupNorm,
  // What a norm computes, too.
  Cast,
  ScaleAndShift,
  Gate,
  GateFirst,
  Activation,
  NormBefore,
  GroupParameters,
  SideBySide, // for each norm that joined another's launch
  // Others.
  Offsets,     // calls whose c + w became a weight offset
  SumsOfNorms, // fused with norms that are no patched call's
  Projections, // norms fused with the matmuls that use them
  Products,    // other quantized products by our kernel
  Ropes,       // norms computed with the rope after them
  RopePairs    // of these in one launch
};
constexpr int kCounted = static_cast<int>(Counted::RopePairs) + 1;

enum class Section { Calls, PassedOn, Written, Around, Numbers };

struct ReportLine {
  Section section;
  const char* text; // of numbers, the name in Python
};
ReportLine line_of(Counted counted);

int64_t count_of(Counted counted);
void count(Counted counted, int times = 1);
void reset_counts();

// Notes on a norm's node that its call has been counted as alone.
void mark_counted(const array& normalized);

// Whether it is so noted, at any time.
bool is_call(const array& normalized);

// Whether a pass counts what it makes of a norm: not of a call before a reset,
// or one that a pass has fused.
bool is_counted(const array& normalized);

// Counts a call as this instead, if it is so counted; returns whether it was.
bool recount(const array& normalized, Counted counted);

} // namespace mlx_norms
