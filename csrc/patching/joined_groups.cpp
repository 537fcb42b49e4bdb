// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/joined_groups.h"

#include "csrc/common/checks.h"
#include "csrc/patching/beside_norm.h"
#include "csrc/patching/followers.h"

namespace mlx_norms {

namespace {

bool joins_last_axes(const array& join, const array& y) {
  if (!is_reshape(join.primitive().name()) || y.ndim() < 2) {
    return false;
  }
  auto joined = y.shape();
  joined.pop_back();
  joined.back() *= y.shape(-1);
  return join.shape() == joined;
}

// The weight of all channels in this product with the norm's result.
OptionalArray
weight_beside(const NormCall& call, const array& joined, const array& next) {
  const auto& spec = call.spec;
  auto* other = beside(joined, next, "Multiply");
  if (!other || spec.has(kWeight) || spec.gates_result() || spec.center ||
      spec.is_modulated()) {
    return std::nullopt;
  }
  auto weight =
      as_vector_of(joined.shape(-1), before_broadcast(*other), call.stream);
  return weight && takes_dtype(weight->dtype()) ? weight : std::nullopt;
}

} // namespace

std::optional<Rewrite> take_after_join(
    const RewrittenGraph& graph,
    NormCall& call,
    const array& y,
    std::vector<Taken>& taken) {
  auto* join = graph.sole_taker(y);
  if (!join || !joins_last_axes(*join, y)) {
    return std::nullopt;
  }
  auto split = [&](const array& a, const mx::Shape& shape) {
    return mx::reshape(a, shape, call.stream);
  };
  auto trial = call;
  std::vector<Taken> found;
  auto* last = join;
  while (auto* next = graph.sole_taker(*last)) {
    if (!is_like(*next, *join) || next->primitive().stream() != call.stream) {
      break;
    }
    if (auto weight = weight_beside(trial, *last, *next)) {
      trial.set(kWeight, split(*weight, {y.shape(-2), y.shape(-1)}));
      found.push_back(Taken::GroupParameters);
    } else if (auto gate = gate_beside(graph, trial, *last, *next)) {
      if (gate->of.shape() != join->shape()) {
        break;
      }
      trial.set(kGate, split(gate->of, y.shape()));
      trial.spec.activation = gate->activation;
      found.push_back(Taken::Gate);
    } else {
      break;
    }
    last = next;
  }
  if (found.empty() || !trial.runs()) {
    return std::nullopt;
  }
  call = std::move(trial);
  taken.insert(taken.end(), found.begin(), found.end());
  return Rewrite{{*last}, join->primitive_ptr(), {y}};
}

} // namespace mlx_norms
