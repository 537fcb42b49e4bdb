// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/patching/plans.h"
#include "csrc/patching/written.h"

namespace mlx_norms {

namespace {

bool is_one_of(const array& a, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name_of(a)) != names.end();
}

bool is_norm_alone(const array& a) {
  auto* norm = op_of<Norm>(a);
  return norm && !norm->spec.has(kResidual);
}

// Whether what is before a norm may have parts that are computed for it alone.
bool has_parts(const array& norm, const Graph& graph) {
  const auto& x = before_reshape(norm.inputs()[0]);
  return op_of<Norm>(norm)->spec.has(kResidual) || name_of(x) != "Add" ||
      std::ranges::any_of(x.inputs(), [&](const array& in) {
           auto traits = graph.traits_of(in);
           bool may_be = traits.before || traits.kind == Kind::Norm;
           return may_be && graph.only_taker(in);
         });
}

// Looks at the operations next to a norm: nearly all have nothing.
Sides sides_of(const array& norm, const Graph& graph) {
  auto* ours = op_of<Norm>(norm);
  if (!ours) {
    return {};
  }
  const auto& in = norm.inputs();
  const auto& x = before_reshape(in[0]);
  bool before = ours->spec.has(kResidual)
      ? is_norm_alone(in[0]) || is_norm_alone(in[1])
      : graph.traits_of(x).before ||
          std::any_of(in.begin() + 1, in.end(), [](const array& parameter) {
            return is_one_of(parameter, {"Add", "Full", "Broadcast"});
          });
  bool after = false;
  auto look = [&](const array& taker) {
    after |= graph.traits_of(taker).after;
  };
  graph.for_takers(norm, [&](const array& taker) {
    look(taker);
    if (graph.traits_of(taker).reshapes) {
      graph.for_takers(taker, look);
    }
  });
  return {before, before && has_parts(norm, graph), after};
}

} // namespace

Prospects prospects_of(const Graph& graph) {
  auto any = [&](Kind kind, auto test) {
    return std::ranges::any_of(
        graph.all(kind), [&](const array* a) { return test(*a); });
  };
  // What is written, or becomes known by a plan, may be all else.
  bool written = any(Kind::Root, may_be_root);
  bool ropes = written || any(Kind::Rope, may_be_rope_of_norm);
  bool beside = ropes || !graph.all(Kind::GroupNorm).empty() ||
      may_stand_side_by_side(graph);
  Prospects found{
      .any = beside, .holders = beside, .ropes = ropes, .beside = beside};
  found.sides.reserve(graph.all(Kind::Norm).size());
  for (const auto* a : graph.all(Kind::Norm)) {
    auto sides = sides_of(*a, graph);
    found.sides.push_back(sides);
    found.any |= sides.any();
    found.holders |= sides.after || sides.parts;
  }
  return found;
}

} // namespace mlx_norms
