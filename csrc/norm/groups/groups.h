// Copyright © 2026 mlx_norms contributors
//
// What norms of groups of channels have of their own. A gradient's inputs are
// the norm's, then mean, rest and variance unless they are given, and the
// cotangent.

#pragma once

#include "csrc/norm/groups/geometry.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

void check_groups(const char* op, const NormSpec& spec, const NormInputs& in);

// [samples..., last]
mx::Shape per_sample(const NormSpec& spec, const array& x, int last);

LaunchPlan plan_groups(
    const NormSpec& spec,
    const NormInputs& in,
    const Arrays& outputs,
    mx::Stream s);
LaunchPlan plan_groups_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream s);

void eval_groups(
    const NormSpec& spec,
    const NormInputs& in,
    Arrays& outputs,
    mx::Stream s);
void eval_groups_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream s);

// Gradients for that of the result, with the norm's {mean, rest, variance}
// unless these are given.
Gradients groups_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array* statistics,
    const array& cotangent,
    Operands wanted,
    mx::Stream s);

// Whether x's gradient depends on the means of g w and g w n.
bool takes_means(const NormVJP& op);
// Whether a GPU's launch of so many chunks has all sums.
bool sums_at_once(const NormVJP& op, int chunks, int of_group);

// How a norm of x takes a single launch; none if it takes several.
std::optional<HeldGeometry>
held_geometry(const NormSpec& spec, const array& x, mx::Stream stream);

// What a self-check asks for: what kernels depend on besides options, and a
// call of the same kernels with few elements.
void append_samples(
    const NormSpec& spec,
    const array& x,
    mx::Stream s,
    std::vector<int64_t>& numbers);
void append_samples(
    const NormVJP& op,
    const array& x,
    std::vector<int64_t>& numbers);
NormSpec few_groups(const NormSpec& spec, const array& x, mx::Stream s);
NormSpec few_groups(const NormVJP& op, const array& x);
Arrays few_samples(const NormSpec& spec, const Arrays& inputs, mx::Stream s);
Arrays few_samples(const NormVJP& op, const Arrays& inputs, mx::Stream s);

} // namespace mlx_norms
