// Copyright © 2026 mlx_norms contributors
//
// Which elements of x a norm takes together.

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// x as [outer, a, kept, b]: an element of outer and kept has one statistic,
// over a and b. Strided groups have b before kept.
//
//   norm of            outer    a          kept    b
//   rows               rows     1          1       the last axis
//   another axis       before   the axis   after   1
//   groups, instances  samples  positions  groups  channels of a group
//
// The instances of a sample are its channels; a batch is one sample.
struct View {
  int64_t outer = 1;
  int64_t a = 1;
  int64_t kept = 1;
  int64_t b = 1;

  View(const NormSpec& spec, const mx::array& x);

  int64_t channels() const { // of groups
    return kept * b;
  }
};

} // namespace mlx_norms
