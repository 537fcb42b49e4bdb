// Copyright © 2026 mlx_norms contributors
//
// What the graph tells of arrays whose computation has not been scheduled yet.

#pragma once

#include <optional>
#include <string_view>
#include <typeinfo>

#include "csrc/common/pending.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

// The state of a primitive whose type is known by its name. UBSan would look up
// the type's name, which MLX does not export.
template <typename P>
__attribute__((no_sanitize("vptr"))) auto state_of(const array& a) {
  return static_cast<P&>(a.primitive()).state();
}

// Whether it has this type of ours: a name that stands once is compared by its
// address, since comparing texts would take most of a pass.
template <typename T, typename Base>
bool is_exactly(const Base& object) {
  return typeid(object).name() == typeid(T).name();
}

// The node of ours of which a pending array is an output; or null.
inline const Node* node_of(const array& a) {
  if (!is_pending(a)) {
    return nullptr;
  }
  auto& primitive = a.primitive();
  return is_exactly<Node>(primitive) ? static_cast<const Node*>(&primitive)
                                     : nullptr;
}

// The op of the node of which a pending array is an output, if it is one of
// these; or null.
template <typename T>
const T* op_of(const array& a) {
  auto* node = node_of(a);
  return node && is_exactly<T>(node->op()) ? static_cast<const T*>(&node->op())
                                           : nullptr;
}

// A pending array's operation, or "".
inline std::string_view name_of(const array& a) {
  return is_pending(a) ? a.primitive().name() : "";
}

// Whether it is one of MLX's own norms, which only a GPU has as nodes.
inline bool is_mlx_norm(std::string_view primitive) {
  return primitive == "RMSNorm" || primitive == "LayerNorm";
}

// Whether it is an operation that moves a vector's axes.
bool is_reshape(std::string_view primitive);

// Whether it is a reshape of `a` that makes its last two axes one.
bool joins_last_axes(const array& join, const array& a);

// What an array was before it was moved so, or before it was broadcast.
const array& before_reshape(const array& a);
const array& before_broadcast(const array& a);

// What a pending cast to float32 takes, if that has 16 bits, as kernels read
// it; else `x`.
const array& before_cast(const array& x, mx::Stream stream);

// A result of this primitive, which other arrays may have, too. MLX's Reshape
// and Broadcast, whose vmap changes them, are made anew.
array made_by(
    const std::shared_ptr<mx::Primitive>& node,
    const mx::Shape& shape,
    mx::Dtype dtype,
    Arrays inputs);

// Whether they have one shape and one dtype.
bool is_like(const array& a, const array& b);

// Whether `a` is a pending sum of two arrays of its shape and dtype.
bool is_sum(const array& a);

// Whether an operand repeats one element per row, or a single one.
bool repeats_along_row(const array& operand);

// A pending `offset + weight`, as in models that store weights less one.
struct ShiftedWeight {
  array weight;
  float offset;
};
std::optional<ShiftedWeight> as_shifted(const array& weight);

// Whether a parameter does nothing: it is mx.ones or mx.zeros, made in the
// trace that x belongs to.
bool does_nothing(const array& parameter, float number, const array& x);

// `s` where an array is `1 + s`, in its shape.
OptionalArray as_scale(const array& factor, int most_views = 8);

// As a vector: a model may keep its parameters as [C, 1, 1].
array as_vector(const array& parameter, mx::StreamOrDevice stream);

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

// Whether `a` is the float16 sum of its first two inputs, clamped in float32,
// in one node of mx.compile, as in mlx_lm's gemma3; and such a sum.
bool is_clamped_sum(const array& a);
array clamped_sum(const array& x, const array& residual, mx::Stream stream);

// Whether a function is being transformed, other than by a gradient's passes
// over what it has computed.
bool in_transform();

} // namespace mlx_norms
