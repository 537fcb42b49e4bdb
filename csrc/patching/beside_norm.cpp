// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/beside_norm.h"

#include <algorithm>
#include <array>

#include "csrc/common/checks.h"
#include "csrc/patching/followers.h"
#include "csrc/patching/prologue.h"

namespace mlx_norms {

namespace {

std::optional<Taken> take_cast(
    const RewrittenGraph&,
    NormCall& call,
    const array&,
    const array& next) {
  bool narrows = call.dtype == mx::float32 && next.dtype() != mx::float32;
  if (!is_pending(next, "AsType") || !narrows ||
      (call.has_parameters() && call.spec.is_factored()) ||
      call.spec.gate_first) {
    return std::nullopt;
  }
  call.dtype = next.dtype();
  if (call.has_parameters()) {
    call.spec.rounding = Rounding::Late;
  }
  return Taken::Cast;
}

// In place of the cast that MLX's operation has.
void widen(NormCall& call, const array& next) {
  call.dtype = next.dtype();
}

bool may_be_modulated(const NormCall& call) {
  return call.spec.is_of_mean_and_eps() && !call.spec.is_gated();
}

bool broadcasts(const array& a, const array& x) {
  int missing = static_cast<int>(x.ndim()) - static_cast<int>(a.ndim());
  bool fits = missing >= 0 && a.ndim() > 0 && a.shape(-1) == x.shape(-1) &&
      takes_dtype(a.dtype());
  for (int i = 0; fits && i < static_cast<int>(a.ndim()); ++i) {
    fits = a.shape(i) == 1 || a.shape(i) == x.shape(missing + i);
  }
  return fits;
}

std::optional<Taken> take_scale(
    const RewrittenGraph&,
    NormCall& call,
    const array& y,
    const array& next) {
  auto* factor = beside(y, next, "Multiply");
  if (!factor || !may_be_modulated(call) || call.spec.is_modulated()) {
    return std::nullopt;
  }
  auto scale = as_scale(before_broadcast(*factor));
  if (!scale || !broadcasts(*scale, call.x())) {
    return std::nullopt;
  }
  call.set(kScale, before_broadcast(*scale));
  if (!broadcasts(*call.in[kScale], call.x())) {
    return std::nullopt;
  }
  widen(call, next);
  return Taken::ScaleAndShift;
}

std::optional<Taken> take_shift(
    const RewrittenGraph&,
    NormCall& call,
    const array& y,
    const array& next) {
  auto* term = beside(y, next, "Add");
  if (!term || !may_be_modulated(call) || call.spec.has(kShift)) {
    return std::nullopt;
  }
  const auto& row = before_broadcast(*term);
  const auto& shift = before_cast(row, call.stream);
  // Without a scale, a sum of rows is a residual's.
  bool is_row = row.id() != term->id();
  if ((!call.spec.has(kScale) && !is_row) || !broadcasts(shift, call.x())) {
    return std::nullopt;
  }
  call.set(kShift, shift);
  widen(call, next);
  return Taken::ScaleAndShift;
}

bool may_be_activated(const NormCall& call) {
  return !call.spec.l2 && !call.spec.has(kResidual) && !call.spec.is_gated() &&
      !call.spec.is_modulated();
}

bool may_be_gated(const NormCall& call) {
  return may_be_activated(call) && !call.spec.center;
}

std::optional<Taken> take_gate(
    const RewrittenGraph& graph,
    NormCall& call,
    const array& y,
    const array& next) {
  auto activated = gate_beside(graph, call, y, next);
  if (!activated || activated->of.shape() != call.x().shape()) {
    return std::nullopt;
  }
  const auto& gate = before_cast(activated->of, call.stream);
  if (gate.id() != activated->of.id()) { // activated in float32
    call.spec.rounding = Rounding::Late;
  }
  call.set(kGate, gate);
  call.spec.activation = activated->activation;
  widen(call, next);
  return Taken::Gate;
}

// Whether the sum that the norm computes, too, is not above what it takes now;
// it is not above what it had.
bool is_acyclic(
    const RewrittenGraph& graph,
    const NormCall& before,
    const NormCall& call,
    const Arrays& old) {
  return old.size() == 1 ||
      std::ranges::all_of(
             call.inputs(call.spec.operands.without(before.spec.operands)),
             [&](const array& a) { return graph.is_independent(a, old[1]); });
}

} // namespace

TakenOperands take_operands(NormCall& call) {
  TakenOperands taken;
  const auto& spec = call.spec;
  if (!may_be_modulated(call) || spec.is_modulated() ||
      spec.operands.without({kX, kWeight, kBias}).count() > 0) {
    return taken;
  }
  auto trial = call;
  auto given = call.x();
  trial.in[kX] = before_cast(given, call.stream);
  taken.any = trial.x().id() != given.id();
  for (auto [operand, nothing] : {std::pair(kWeight, 1.0f), {kBias, 0.0f}}) {
    if (trial.in[operand] && does_nothing(*trial.in[operand], nothing, given)) {
      trial.clear(operand);
      taken.any = true;
    }
  }
  auto shifted = trial.in[kWeight] && spec.weight_offset == 0.0f
      ? as_shifted(*trial.in[kWeight])
      : std::nullopt;
  if (shifted) {
    trial.in[kWeight] = shifted->weight;
    trial.spec.weight_offset = shifted->offset;
    trial.spec.rounding = Rounding::Late;
    taken.any = taken.offset = true;
  }
  if (!taken.any || !trial.runs()) {
    return {};
  }
  call = std::move(trial);
  return taken;
}

std::optional<Activated> gate_beside(
    const RewrittenGraph& graph,
    const NormCall& call,
    const array& y,
    const array& next) {
  if (!may_be_gated(call)) {
    return std::nullopt;
  }
  auto read = [](std::optional<Activated> gate) {
    return gate && takes_dtype(gate->of.dtype()) ? gate : std::nullopt;
  };
  if (auto gated = as_gated(next)) {
    return gated->of.id() == y.id()
        ? read(Activated{Activation::Silu, gated->gate, 1})
        : std::nullopt;
  }
  auto* gate = beside(y, next, "Multiply");
  return gate && graph.is_part(*gate) ? read(as_activation(*gate))
                                      : std::nullopt;
}

std::optional<Taken>
take_follower(const RewrittenGraph& graph, NormCall& call, Arrays& old) {
  const auto y = old[0];
  if (!graph.before().is_inner(y) || graph.before().is_kept(y)) {
    return std::nullopt;
  }
  if (auto* next = graph.sole_taker(y)) {
    if (next->primitive().stream() != call.stream ||
        next->shape() != y.shape() || !takes_dtype(next->dtype())) {
      return std::nullopt;
    }
    for (auto take : {take_cast, take_scale, take_shift, take_gate}) {
      auto trial = call;
      auto taken = take(graph, trial, y, *next);
      if (taken && is_acyclic(graph, call, trial, old) && trial.runs()) {
        call = std::move(trial);
        old[0] = *next;
        return taken;
      }
    }
  }
  auto trial = call;
  auto* top = may_be_activated(call)
      ? activation_after(graph, y, call.stream, trial.spec.activation)
      : nullptr;
  if (top && trial.runs()) {
    call = std::move(trial);
    old[0] = *top;
    return Taken::Activation;
  }
  return std::nullopt;
}

bool take_gate_first(const RewrittenGraph& graph, NormCall& call) {
  auto is_part = [&](const array& a) {
    return graph.is_part(a) && a.primitive().stream() == call.stream;
  };
  const auto x = call.x();
  if (!may_be_gated(call) || !is_part(x)) {
    return false;
  }
  // A product may be split into groups: its operands are, then.
  const auto product = before_reshape(x);
  bool splits = product.id() != x.id();
  if (splits && !is_part(product)) {
    return false;
  }
  auto split = [&](const array& a) {
    return splits ? made_by(x.primitive_ptr(), x.shape(), a.dtype(), {a}) : a;
  };
  auto take = [&](const array& of, const Activated& gate) {
    if (!is_like(of, product) || !is_like(gate.of, product)) {
      return false;
    }
    auto trial = call;
    trial.set(kX, split(of));
    trial.set(kGate, split(gate.of));
    trial.spec.activation = gate.activation;
    trial.spec.gate_first = true;
    bool runs = trial.runs();
    if (runs) {
      call = std::move(trial);
    }
    return runs;
  };
  if (auto gated = as_gated(product)) {
    return take(gated->of, {Activation::Silu, gated->gate, 1});
  }
  if (!is_pending(product, "Multiply")) {
    return false;
  }
  const auto& in = product.inputs();
  return std::ranges::any_of(std::array{1, 0}, [&](int i) {
    auto activated = graph.is_part(in[i]) ? as_activation(in[i]) : std::nullopt;
    return activated && take(in[1 - i], *activated);
  });
}

namespace {

constexpr int kMaxNodes = 6; // of an activation

// Whether all that takes `y` has no other result than `top`.
bool leads_only_to(
    const RewrittenGraph& graph,
    const array& y,
    const array& top) {
  bool only = true;
  graph.before().for_takers(y, [&](const array& taker) {
    auto* a = &taker;
    for (int i = 0; a && a->id() != top.id(); ++i) {
      a = i < kMaxNodes && graph.is_part(*a) ? graph.sole_taker(*a) : nullptr;
    }
    only &= a != nullptr;
  });
  return only;
}

// The activation of `y` alone, whatever its dtype.
const array* activation_of(
    const RewrittenGraph& graph,
    const array& y,
    Activation& activation) {
  if (graph.is_taken(y)) {
    return nullptr;
  }
  int uses = 0;
  const array* last = nullptr;
  graph.before().for_takers(y, [&](const array& taker) {
    ++uses;
    last = &taker;
  });
  for (int i = 0; last && i < kMaxNodes; ++i) {
    auto found = as_activation(*last);
    if (found && found->of.id() == y.id() && found->uses == uses) {
      if (graph.rewrite_of(*last) || !leads_only_to(graph, y, *last)) {
        return nullptr;
      }
      activation = found->activation;
      return last;
    }
    last = graph.sole_taker(*last);
  }
  return nullptr;
}

} // namespace

const array* activation_after(
    const RewrittenGraph& graph,
    const array& y,
    mx::Stream stream,
    Activation& activation) {
  auto found = Activation::None;
  auto* top =
      graph.before().is_kept(y) ? nullptr : activation_of(graph, y, found);
  if (!top || top->dtype() != y.dtype() ||
      top->primitive().stream() != stream) {
    return nullptr;
  }
  activation = found;
  return top;
}

} // namespace mlx_norms
