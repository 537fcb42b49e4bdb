// Copyright © 2026 mlx_norms contributors
//
// What a norm's pending input is computed from, as far as a norm's kernel can
// compute it: the row's prologue.

#pragma once

#include "csrc/patching/pending.h"

namespace mlx_norms {

// Whether nothing but the node that uses it holds a pending array.
using HeldOnce = std::function<bool(const array&)>;

// The sum of a residual and x, of which a factor multiplies x or, if it is an
// array of one element, the sum; or that of both and a second residual. A
// float16 sum may be clamped.
struct Prologue {
  array x;
  array residual;
  OptionalArray residual2 = std::nullopt;
  OptionalArray factor = std::nullopt;
  float number = 1.0f;
  bool clamp = false;
  bool factor_of_sum = false;

  void set(NormSpec& spec) const;
};

// The prologue that computes `h` as its pending nodes do, bit by bit; nullopt:
// it is no pending sum. Products, and a sum that is a factor of one, are part
// of it if nothing else takes them.
std::optional<Prologue> prologue_of(
    const array& h,
    Rounding rounding,
    mx::Stream stream,
    const HeldOnce& held_once);

// What a pending cast to float32 takes, if that has 16 bits, as kernels read
// it; else `x`.
const array& before_cast(const array& x, mx::Stream stream);

// The clamped sum of two float16 arrays as a node of MLX's.
array clamped_sum(const array& x, const array& residual, mx::Stream stream);

} // namespace mlx_norms
