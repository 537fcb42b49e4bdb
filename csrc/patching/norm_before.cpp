// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/norm_before.h"

#include "csrc/common/checks.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"

namespace mlx_norms {

namespace {

bool has_sum_planned(const RewrittenGraph& graph, const array& norm) {
  auto* rewrite = graph.rewrite_of(norm);
  return rewrite && rewrite->old.size() > 1;
}

bool is_rms(const NormCall& call, mx::Dtype dtype) {
  const auto& weight = call.in[kWeight];
  if (weight && !is_vector(*weight, call.x().shape(-1))) {
    return false;
  }
  return call.spec.is_basic() && !call.spec.center && !call.spec.clamp &&
      !call.spec.operands.has_any({kBias, kResidual2}) && call.dtype == dtype &&
      call.x().dtype() == dtype;
}

} // namespace

OptionalArray take_norm_before(
    const RewrittenGraph& graph,
    const CallOf& call_of,
    const NormCall& call,
    Rewrite& rewrite) {
  const auto& spec = call.spec;
  if (!is_rms(call, call.dtype)) {
    return std::nullopt;
  }
  bool has_sum = spec.has(kResidual);
  const auto& sum = has_sum ? rewrite.old[1] : call.x();
  if (!has_sum &&
      (!graph.before().is_inner(sum) || graph.rewrite_of(sum) ||
       !is_pending_sum(sum) || sum.primitive().stream() != call.stream)) {
    return std::nullopt;
  }
  const Arrays terms{
      has_sum ? call.x() : sum.inputs()[0],
      has_sum ? *call.in[kResidual] : sum.inputs()[1]};
  for (int i : {0, 1}) {
    auto before = graph.sole_taker(terms[i]) ? call_of(terms[i]) : std::nullopt;
    const auto& residual = terms[1 - i];
    if (!before || !is_rms(*before, call.dtype) ||
        before->spec.has(kResidual) || has_sum_planned(graph, terms[i]) ||
        before->stream != call.stream || before->spec.eps != spec.eps ||
        !is_like(residual, before->x()) ||
        (!has_sum && spec.has(kWeight) &&
         !graph.is_independent(*call.in[kWeight], sum))) {
      continue;
    }
    bool both = before->spec.has(kWeight) && spec.has(kWeight);
    const auto& with = spec.has(kWeight) ? spec : before->spec;
    if (both ? spec.weight_offset != before->spec.weight_offset ||
                spec.rounding != before->spec.rounding
             : with.weight_offset != 0.0f) {
      continue;
    }
    NormAddNorm op{
        .spec =
            {.post_weight = before->spec.has(kWeight),
             .weight = spec.has(kWeight),
             .rounding = with.rounding,
             .weight_offset = with.weight_offset,
             .eps = spec.eps},
        .dtypes = {call.dtype, call.dtype}};
    NormAddNormInputs in(
        before->x(),
        residual,
        pointer_to(before->in[kWeight]),
        pointer_to(call.in[kWeight]));
    auto inputs = in.arrays();
    if (!has_kernel(op, inputs, call.stream)) {
      continue;
    }
    rewrite.node =
        std::make_shared<Node<NormAddNorm>>(call.stream, std::move(op));
    rewrite.inputs = std::move(inputs);
    if (!has_sum) {
      rewrite.old.push_back(sum);
    }
    return terms[i];
  }
  return std::nullopt;
}

} // namespace mlx_norms
