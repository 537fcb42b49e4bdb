// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/plan_channels.h"

#include "csrc/common/checks.h"
#include "csrc/group_norm/group_norm.h"
#include "csrc/patching/beside_norm.h"
#include "csrc/patching/followers.h"

namespace mlx_norms {

namespace {

template <typename Op>
void add(
    RewrittenGraph& graph,
    const Op& op,
    Rewrite rewrite,
    mx::Stream stream,
    const std::vector<Taken>& taken) {
  if (taken.empty() || !has_kernel(op, rewrite.inputs, stream)) {
    return;
  }
  rewrite.node = std::make_shared<Node<Op>>(stream, op);
  if (graph.add(std::move(rewrite))) {
    for (auto each : taken) {
      count(each);
    }
  }
}

void plan_group_norm(
    RewrittenGraph& graph,
    const array& a,
    GroupNorm op,
    mx::Stream stream) {
  const auto outputs = a.outputs();
  if (outputs[0].id() != a.id() || op.spec.groups == 0) {
    return;
  }
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
    auto parameter = other && next->primitive().stream() == stream
        ? as_vector_of(channels, before_broadcast(*other), stream)
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
  auto activation = Activation::None;
  auto* top = activation_after(graph, y, stream, activation);
  if (top &&
      (activation == Activation::Silu || activation == Activation::Gelu)) {
    spec.activation = activation;
    y = *top;
    taken.push_back(Taken::Activation);
  }
  add(graph, op, std::move(rewrite), stream, taken);
}

} // namespace

void plan_channel_norm(
    RewrittenGraph& graph,
    const array& normalized,
    ChannelNorm op,
    Arrays inputs,
    mx::Stream stream,
    std::optional<Taken> written) {
  Rewrite rewrite{{normalized}, nullptr, std::move(inputs)};
  std::vector<Taken> taken;
  if (written) {
    taken.push_back(*written);
  }
  auto& activation = op.spec.activation;
  auto* top = activation == Activation::None
      ? activation_after(graph, normalized, stream, activation)
      : nullptr;
  if (top) {
    rewrite.old[0] = *top;
    taken.push_back(Taken::Activation);
  }
  add(graph, op, std::move(rewrite), stream, taken);
}

void plan_channels(RewrittenGraph& graph, const array& a) {
  auto stream = a.primitive().stream();
  if (auto* op = op_of<ChannelNorm>(a)) {
    plan_channel_norm(graph, a, *op, a.inputs(), stream, std::nullopt);
  } else {
    plan_group_norm(graph, a, *op_of<GroupNorm>(a), stream);
  }
}

} // namespace mlx_norms
