// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/patching/plans.h"
#include "csrc/patching/written.h"

namespace mlx_norms {

namespace {

bool is_one_of(const array& a, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name_of(a)) != names.end();
}

bool is_compiled(const array& a) {
  return is_pending(a) && dynamic_cast<mx::Compiled*>(&a.primitive());
}

bool is_norm_alone(const array& a) {
  auto* norm = op_of<Norm>(a);
  return norm && !norm->spec.has(kResidual);
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
      : is_one_of(x, {"Add", "Multiply", "AsType"}) || is_compiled(x) ||
          std::any_of(in.begin() + 1, in.end(), [](const array& parameter) {
            return is_one_of(parameter, {"Add", "Full", "Broadcast"});
          });
  bool after = false;
  auto look = [&](const array& taker) {
    after |=
        is_one_of(
            taker,
            {"AsType", "Multiply", "Add", "Sigmoid", "Divide", "Maximum"}) ||
        is_compiled(taker);
  };
  graph.for_takers(norm, [&](const array& taker) {
    is_reshape(name_of(taker)) ? graph.for_takers(taker, look) : look(taker);
  });
  return {before, after};
}

// Whether what is before a norm may have parts that are computed for it alone.
bool has_parts(const array& norm, const Graph& graph) {
  const auto& x = before_reshape(norm.inputs()[0]);
  auto* ours = op_of<Norm>(norm);
  return (ours && ours->spec.has(kResidual)) || name_of(x) != "Add" ||
      std::ranges::any_of(x.inputs(), [&](const array& in) {
           bool may_be = is_one_of(in, {"Add", "Multiply"}) ||
               is_compiled(in) || op_of<Norm>(in) || is_mlx_norm(name_of(in));
           return may_be && graph.only_taker(in);
         });
}

} // namespace

Prospects prospects_of(const Graph& graph) {
  auto any = [&](Kind kind, auto test) {
    return std::ranges::any_of(
        graph.all(kind), [&](const array* a) { return test(*a); });
  };
  bool is_any = !graph.all(Kind::GroupNorm).empty() ||
      any(Kind::Rope, is_rope_of_norm) || any(Kind::Root, may_be_root) ||
      may_stand_side_by_side(graph);
  Prospects found{is_any, is_any, {}};
  found.sides.reserve(graph.all(Kind::Norm).size());
  for (const auto* a : graph.all(Kind::Norm)) {
    auto sides = sides_of(*a, graph);
    found.sides.push_back(sides);
    found.any |= sides.any();
    found.holders |= sides.after || (sides.before && has_parts(*a, graph));
  }
  return found;
}

} // namespace mlx_norms
