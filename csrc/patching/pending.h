// Copyright © 2026 mlx_norms contributors
//
// What can be told of arrays whose computation has not been scheduled yet, by
// looking at the graph above them.

#pragma once

#include <optional>

#include "csrc/common/pending.h"
#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Whether `a` is a pending sum of two arrays of its shape and dtype.
bool is_pending_sum(const array& a);

// Whether an operand holds one element a row, or one in all, that is repeated.
bool repeats_along_row(const array& operand);

// A pending `offset + weight`, as models that store weights less one have it.
struct ShiftedWeight {
  array weight;
  float offset;
};
std::optional<ShiftedWeight> as_shifted(const array& weight);

// What a short walk through the graph above an array has met.
struct Ancestry {
  bool meets = false;  // the array looked for
  bool ends = true;    // in arrays without inputs, within kWalk nodes
  bool traced = false; // what a transform traces
};
constexpr int kWalk = 8;

// The inputs of a node, which a graph pass may be about to change.
using InputsOf = std::function<const Arrays&(const array&)>;

// Where none is about to.
inline const Arrays& present_inputs(const array& a) {
  return a.inputs();
}

Ancestry
look_above(const array& a, const array& looked_for, const InputsOf& inputs_of);

// Whether a short walk above `a` meets an argument that vmap or compile trace
// with, which has no value, and that one above `other` does not meet.
bool takes_argument_unknown_to(const array& a, const array& other);

} // namespace mlx_norms
