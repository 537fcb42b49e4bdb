// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/group_norm_plan.h"

#include "csrc/common/checks.h"
#include "csrc/group_norm/group_norm.h"
#include "csrc/patching/beside_norm.h"
#include "csrc/patching/followers.h"

namespace mlx_norms {

void plan_group_norm(RewrittenGraph& graph, const array& a) {
  auto* node = dynamic_cast<Node<GroupNorm>*>(&a.primitive());
  const auto outputs = a.outputs();
  if (!node || outputs[0].id() != a.id() || node->op().spec.groups == 0) {
    return;
  }
  auto op = node->op();
  auto& spec = op.spec;
  if (spec.activation != Activation::None) {
    return;
  }
  Rewrite rewrite{outputs, nullptr, a.inputs()};
  auto& y = rewrite.old[0];
  int channels = a.shape(-1);
  std::vector<Taken> taken;
  for (auto [name, has, at] :
       {std::tuple("Multiply", &spec.weight, 1), {"Add", &spec.bias, 1}}) {
    auto* next = graph.sole_taker(y);
    auto* other = next ? beside(y, *next, name) : nullptr;
    auto parameter = other && next->primitive().stream() == node->stream()
        ? as_vector_of(channels, before_broadcast(*other), node->stream())
        : std::nullopt;
    if (!parameter || *has || (has == &spec.weight && spec.bias) ||
        !takes_dtype(parameter->dtype()) || next->dtype() != op.dtypes[0]) {
      continue;
    }
    auto place =
        rewrite.inputs.begin() + at + (has == &spec.bias && spec.weight);
    rewrite.inputs.insert(place, std::move(*parameter));
    *has = true;
    taken = {Taken::GroupParameters};
    y = *next;
  }
  Activation activation = Activation::None;
  auto* top =
      graph.before().is_kept(y) ? nullptr : activation_of(graph, y, activation);
  bool fits = activation == Activation::Silu || activation == Activation::Gelu;
  if (top && fits && is_like(*top, y) &&
      top->primitive().stream() == node->stream()) {
    spec.activation = activation;
    y = *top;
    taken.push_back(Taken::Activation);
  }
  if (!taken.empty() && has_kernel(op, rewrite.inputs, node->stream())) {
    rewrite.node = std::make_shared<Node<GroupNorm>>(node->stream(), op);
    graph.add(std::move(rewrite));
    for (auto each : taken) {
      count(each);
    }
  }
}

} // namespace mlx_norms
