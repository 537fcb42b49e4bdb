// Copyright © 2026 mlx_norms contributors
//
// Patterns of what stands around a norm in a graph. A pattern is a test of an
// array that notes which arrays become the norm's operands.

#pragma once

#include <functional>
#include <utility>

#include "csrc/patching/graph.h"
#include "csrc/patching/norm_call.h"

namespace mlx_norms {

// The norm that an array is, with what has been made part of it so far.
using CallOf = std::function<std::optional<NormCall>(const array&)>;

// Where a pattern is looked for.
struct Site {
  const Graph& graph;
  const CallOf& call_of;
  const NormCall& call;
  const array& y; // the norm's result
  Ask ask;
};

// What a pattern finds besides operands.
struct Found {
  Activation activation = Activation::None;
  float number = 1.0f;
  bool widened = false; // an operand was cast to float32
};

struct Match : Found {
  mx::SmallVector<std::pair<Operand, array>, 4> operands;
  // A norm before a sum, and its result.
  std::optional<NormCall> inner;
  OptionalArray inner_result;

  bool bind(Operand operand, const array& a) {
    operands.emplace_back(operand, a);
    return true;
  }
};

using Pattern = std::function<bool(const Site&, const array&, Match&)>;

// The norm's result.
bool y(const Site& site, const array& a, Match&);

// An operand, whatever it is.
Pattern any(Operand operand);

// What these take, in either order; a sum has the shape of both.
Pattern sum(Pattern a, Pattern b);
Pattern product(Pattern a, Pattern b);

// What is computed for this match alone, on the norm's stream.
Pattern part(Pattern of);

Pattern either(Pattern a, Pattern b);

// What one of our activations is of.
Pattern activated(Pattern of);

// act(gate) * other, or silu(gate) * other in one node of mx.compile.
Pattern gated(Pattern gate, Pattern other);

} // namespace mlx_norms
