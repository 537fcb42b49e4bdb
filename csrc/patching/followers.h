// Copyright © 2026 mlx_norms contributors
//
// What code does with a norm's result that is an option of our norms.

#pragma once

#include "csrc/common/activation.h"
#include "csrc/patching/pending.h"

namespace mlx_norms {

// An activation of an array, as MLX's operations compute it.
struct Activated {
  Activation activation;
  const array& of;
  int uses; // of that array
};
std::optional<Activated> as_activation(const array& a);

// silu(gate) * of in one node of mx.compile, as mlx_lm's swiglu.
struct Gated {
  const array& gate;
  const array& of;
};
std::optional<Gated> as_gated(const array& a);

// The other factor or term of a product or a sum; null: `a` is none with
// `operand`, or one of it and itself.
const array* beside(const array& operand, const array& a, const char* name);

// What an array was before it was broadcast.
const array& before_broadcast(const array& a);

// `s` where an array is `1 + s`, in its shape.
OptionalArray as_scale(const array& factor, int most_views = 8);

// The vector of `length` that an array is, with other axes of one element.
OptionalArray as_vector_of(int length, const array& a, mx::Stream stream);

} // namespace mlx_norms
