// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/match.h"

namespace mlx_norms {

namespace {

// Tries the inputs in order, then exchanged.
bool commutes(
    const Pattern& a,
    const Pattern& b,
    const Site& site,
    const array& node,
    Match& match) {
  const auto& in = node.inputs();
  const Found found = match;
  auto operands = match.operands.size();
  for (int i : {0, 1}) {
    if (a(site, in[i], match) && b(site, in[1 - i], match)) {
      return true;
    }
    static_cast<Found&>(match) = found;
    match.operands.pop_back(match.operands.size() - operands);
  }
  return false;
}

} // namespace

bool y(const Site& site, const array& a, Match&) {
  return a.id() == site.y.id();
}

Pattern any(Operand operand) {
  return [operand](const Site&, const array& a, Match& match) {
    return match.bind(operand, a);
  };
}

Pattern sum(Pattern a, Pattern b) {
  return [=](const Site& site, const array& node, Match& match) {
    return is_sum(node) && commutes(a, b, site, node, match);
  };
}

Pattern product(Pattern a, Pattern b) {
  return [=](const Site& site, const array& node, Match& match) {
    return is_pending(node, "Multiply") && commutes(a, b, site, node, match);
  };
}

Pattern part(Pattern of) {
  return [=](const Site& site, const array& a, Match& match) {
    return of(site, a, match) && site.graph.is_part(a, site.ask) &&
        a.primitive().stream() == site.call.stream;
  };
}

Pattern either(Pattern a, Pattern b) {
  return [=](const Site& site, const array& node, Match& match) {
    return a(site, node, match) || b(site, node, match);
  };
}

Pattern activated(Pattern of) {
  return [=](const Site& site, const array& a, Match& match) {
    auto found = as_activation(a);
    if (!found || !of(site, found->of, match)) {
      return false;
    }
    match.activation = found->activation;
    return true;
  };
}

Pattern gated(Pattern gate, Pattern other) {
  auto compiled = [=](const Site& site, const array& a, Match& match) {
    auto found = as_gated(a);
    if (!found || !is_like(found->gate, a) || !is_like(found->of, a) ||
        !other(site, found->of, match) || !gate(site, found->gate, match)) {
      return false;
    }
    match.activation = Activation::Silu;
    return true;
  };
  return either(compiled, product(other, part(activated(gate))));
}

} // namespace mlx_norms
