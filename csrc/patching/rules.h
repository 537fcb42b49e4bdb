// Copyright © 2026 mlx_norms contributors
//
// The one table of what a norm can compute of what stands around it.

#pragma once

#include <vector>

#include "csrc/patching/match.h"
#include "csrc/patching/report.h"

namespace mlx_norms {

// Where a pattern's root is.
enum class At {
  Result,  // what alone takes the norm's result
  Results, // the only result of all that takes it
  Joined,  // what alone takes that, with its last two axes joined
  Input,   // the norm's x
  Sum,     // the norm's x, which becomes an output of the norm
  Parts    // the same, of what is computed for it alone
};

struct Rule {
  Counted counted;
  At at;
  Ask ask; // Takers: it may change bits
  bool (*when)(const NormCall& call);
  Pattern pattern;
  // Sets the options. The operands that the pattern found are set by then.
  void (*becomes)(NormCall& call, const Match& match, const array& root);
};

// Rules in order: the first that applies is taken, then all are tried anew.
const std::vector<Rule>& rules();

// Takes what a patched call's operands are computed from: the 16 bits of an x
// that is cast to float32, and w of a weight 1 + w; and none that does nothing.
// Returns whether any changed, and whether a weight did.
struct TakenOperands {
  bool any = false;
  bool offset = false;
};
TakenOperands take_operands(NormCall& call);

} // namespace mlx_norms
