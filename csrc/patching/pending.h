// Copyright © 2026 mlx_norms contributors
//
// What the graph tells of arrays whose computation has not been scheduled yet.

#pragma once

#include <functional>
#include <optional>
#include <string>
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

// The op of the node of which a pending array is an output, if it is one of
// these; or null.
template <typename Op>
const Op* op_of(const array& a) {
  if (!is_pending(a)) {
    return nullptr;
  }
  auto& primitive = a.primitive();
  return typeid(primitive) == typeid(Node<Op>)
      ? &static_cast<Node<Op>&>(primitive).op()
      : nullptr;
}

// Whether it is an operation that moves a vector's axes.
bool is_reshape(std::string_view primitive);

// What a pending one of these moves, or else `a`.
const array& before_reshape(const array& a);

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
bool is_pending_sum(const array& a);

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

// What a short walk through the graph above an array found.
struct Ancestry {
  bool meets = false;  // the array looked for
  bool ends = true;    // at arrays without inputs, within the walk
  bool traced = false; // a tracer of a transform
};

// The node of mx.compile whose only output `a` is; or null. Its lib_name()
// tells its structure, dtypes and constants.
const mx::Compiled* as_compiled(const array& a);

// The name of the node that mx.compile makes of a function, which is traced
// anew; empty where it makes none, as within a trace.
std::string compiled_name(
    const std::function<Arrays(const Arrays&)>& f,
    const Arrays& inputs,
    bool shapeless);

// Whether a function is being transformed, other than by a gradient's passes
// over what it has computed.
bool in_transform();

// Returns the inputs of a node, which a graph pass may be about to change.
using InputsOf = std::function<const Arrays&(const array&)>;

Ancestry look_above(
    const array& a,
    const array& looked_for,
    const InputsOf& inputs_of,
    int walk);

} // namespace mlx_norms
