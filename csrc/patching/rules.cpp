// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/rules.h"

#include "csrc/common/checks.h"

namespace mlx_norms {

namespace {

// --- When -------------------------------------------------------------------

bool may_be_modulated(const NormCall& call) {
  return call.is_of_rows() && call.spec.is_of_mean_and_eps() &&
      !call.spec.is_gated();
}

bool may_be_activated(const NormCall& call) {
  return !call.spec.norm_first && !call.spec.l2 && !call.spec.has(kResidual) &&
      !call.spec.is_gated() && !call.spec.is_modulated();
}

bool may_be_gated(const NormCall& call) {
  return call.is_of_rows() && may_be_activated(call) && !call.spec.center;
}

bool may_take_sum(const NormCall& call) {
  return may_be_modulated(call) && !call.spec.has(kResidual) &&
      !call.spec.is_factored();
}

bool may_be_narrowed(const NormCall& call) {
  return call.is_of_rows() && call.dtype == mx::float32 &&
      !(call.has_parameters() && call.spec.is_factored()) &&
      !call.spec.gate_first;
}

bool is_bare_of_groups(const NormCall& call) {
  return call.spec.grouped && !call.spec.has(kBias) && !call.spec.is_gated();
}

// --- Operands ---------------------------------------------------------------

bool broadcasts(const array& a, const array& x) {
  int missing = static_cast<int>(x.ndim()) - static_cast<int>(a.ndim());
  bool fits = missing >= 0 && a.ndim() > 0 && a.shape(-1) == x.shape(-1) &&
      takes_dtype(a.dtype());
  for (int i = 0; fits && i < static_cast<int>(a.ndim()); ++i) {
    fits = a.shape(i) == 1 || a.shape(i) == x.shape(missing + i);
  }
  return fits;
}

bool narrowed(const Site& site, const array& a, Match&) {
  return is_pending(a, "AsType") && a.dtype() != mx::float32 &&
      a.inputs()[0].id() == site.y.id();
}

bool scale(const Site& site, const array& factor, Match& match) {
  auto scale = as_scale(before_broadcast(factor));
  if (!scale || !broadcasts(*scale, site.call.x())) {
    return false;
  }
  const auto& whole = before_broadcast(*scale);
  return broadcasts(whole, site.call.x()) && match.bind(kScale, whole);
}

// Without a scale, a sum of rows is a residual's.
bool shift(const Site& site, const array& term, Match& match) {
  const auto& row = before_broadcast(term);
  const auto& shift = before_cast(row, site.call.stream);
  bool is_row = row.id() != term.id();
  return (is_row || site.call.spec.has(kScale)) &&
      broadcasts(shift, site.call.x()) && match.bind(kShift, shift);
}

bool gate(const Site& site, const array& z, Match& match) {
  const auto& gate = before_cast(z, site.call.stream);
  match.widened = gate.id() != z.id();
  return takes_dtype(z.dtype()) && match.bind(kGate, gate);
}

// A vector of all channels, which are the last axis.
Pattern channels(Operand operand) {
  return [operand](const Site& site, const array& a, Match& match) {
    const auto& vector = before_broadcast(a);
    int length = site.y.shape(-1);
    return vector.ndim() > 0 && vector.shape(-1) == length &&
        static_cast<int>(vector.size()) == length &&
        takes_dtype(vector.dtype()) &&
        match.bind(operand, as_vector(vector, site.call.stream));
  };
}

bool activation_of_groups(const Site& site, const array& a, Match& match) {
  static const auto activated_y = activated(y);
  return activated_y(site, a, match) &&
      (match.activation == Activation::Silu ||
       match.activation == Activation::Gelu);
}

bool one_element(const Site&, const array& a, Match& match) {
  const auto& whole = before_broadcast(a);
  return whole.id() != a.id() && whole.size() == 1 &&
      match.bind(kFactor, whole);
}

// `b` as a factor of `a`, if it is broadcast: a number, or with the last axis.
bool broadcast_factor(const array& a, const array& b, Match& match) {
  const auto& whole = before_broadcast(b);
  if (whole.id() == b.id() || repeats_along_row(a)) {
    return false;
  }
  if (whole.ndim() > 0) {
    return whole.shape(-1) == a.shape(-1) && match.bind(kX, a) &&
        match.bind(kFactor, whole);
  }
  auto number = as_number(whole);
  match.number = number.value_or(1.0f);
  return number && match.bind(kX, a);
}

bool factored(const Site&, const array& p, Match& match) {
  if (!is_pending(p, "Multiply")) {
    return false;
  }
  const auto& a = p.inputs()[0];
  const auto& b = p.inputs()[1];
  return broadcast_factor(a, b, match) || broadcast_factor(b, a, match) ||
      (!repeats_along_row(a) && !repeats_along_row(b) && match.bind(kX, a) &&
       match.bind(kFactor, b));
}

bool number(const Site&, const array& a, Match& match) {
  const auto& whole = before_broadcast(a);
  auto found = whole.ndim() == 0 ? as_number(whole) : std::nullopt;
  match.number = found.value_or(1.0f);
  return found && whole.id() != a.id();
}

bool clamped(const Site&, const array& h, Match& match) {
  return is_clamped_sum(h) && match.bind(kX, h.inputs()[0]) &&
      match.bind(kResidual, h.inputs()[1]);
}

// A product before the norm, which may be split into groups.
bool gate_first(const Site& site, const array& x, Match& match) {
  static const auto product = part(gated(any(kGate), any(kX)));
  static const auto split = part([](auto& site, const array& x, auto& match) {
    return product(site, before_reshape(x), match);
  });
  bool is_split = before_reshape(x).id() != x.id();
  return (is_split ? split : product)(site, x, match);
}

bool no_norm(const Site& site, const array& x, Match& match) {
  return !site.call_of(x) && match.bind(kX, x);
}

bool weight_of_rows(const Site&, const array& a, Match& match) {
  const auto& weight = before_broadcast(a);
  return weight.id() != a.id() && is_vector(weight, a.shape(-1)) &&
      weight.size() > 1 && // else it is a sum's
      takes_dtype(weight.dtype()) && match.bind(kGate, weight);
}

bool is_rms(const NormCall& call, mx::Dtype dtype) {
  const auto& weight = call.in[kWeight];
  if (weight && !is_vector(*weight, call.x().shape(-1))) {
    return false;
  }
  return call.is_of_rows() && call.spec.is_basic() && !call.spec.center &&
      !call.spec.clamp && !call.spec.has(kBias) && call.dtype == dtype &&
      call.x().dtype() == dtype;
}

// Whether two weights, or the only one, are applied in one way; no offset if
// that is the first one.
bool have_one_way(const NormSpec& before, const NormSpec& spec) {
  return !before.has(kWeight) || !spec.has(kWeight)
      ? (spec.has(kWeight) ? spec : before).weight_offset == 0.0f
      : spec.weight_offset == before.weight_offset &&
          spec.rounding == before.rounding;
}

// A term of the norm's sum is a norm that nothing else takes.
bool norm_before(const Site& site, const array& sum, Match& match) {
  static const auto scaled = part(product(any(kResidual), number));
  const auto& call = site.call;
  bool has_sum = call.spec.has(kResidual);
  if (!is_rms(call, call.dtype) || !(has_sum || is_sum(sum))) {
    return false;
  }
  const auto* first = has_sum ? &call.x() : &sum.inputs()[0];
  const auto* second = has_sum ? &*call.in[kResidual] : &sum.inputs()[1];
  for (auto [term, residual] :
       {std::pair(first, second), std::pair(second, first)}) {
    auto before = site.call_of(*term);
    if (!before || !site.graph.sole_taker(*term, site.ask)) {
      continue;
    }
    auto* planned = site.graph.rewrite_of(*term);
    if (!(planned && planned->old.size() > 1) && is_rms(*before, call.dtype) &&
        !before->spec.has(kResidual) && before->stream == call.stream &&
        before->spec.eps == call.spec.eps && is_like(*residual, before->x()) &&
        have_one_way(before->spec, call.spec)) {
      match.inner_result = *term;
      bool early = call.spec.rounding == Rounding::Early &&
          before->spec.rounding == Rounding::Early;
      auto trial = match;
      if (early && scaled(site, *residual, trial)) {
        match = std::move(trial);
      } else {
        match.bind(kResidual, *residual);
      }
      match.bind(kX, before->x());
      match.inner = std::move(before);
      return true;
    }
  }
  return false;
}

// --- What becomes of the norm -----------------------------------------------

void nothing_more(NormCall&, const Match&, const array&) {}

void widen(NormCall& call, const Match&, const array& root) {
  call.dtype = root.dtype();
}

void narrow(NormCall& call, const Match&, const array& root) {
  call.dtype = root.dtype();
  if (call.has_parameters()) {
    call.spec.rounding = Rounding::Late;
  }
}

void activate(NormCall& call, const Match& match, const array&) {
  call.spec.activation = match.activation;
}

void gate_result(NormCall& call, const Match& match, const array& root) {
  call.spec.activation = match.activation;
  call.dtype = root.dtype();
  if (match.widened) { // it is activated in float32
    call.spec.rounding = Rounding::Late;
  }
}

void gate_x(NormCall& call, const Match& match, const array& x) {
  call.spec.activation = match.activation;
  call.spec.gate_first = true;
  if (before_reshape(x).id() != x.id()) {
    for (auto operand : {kX, kGate}) {
      auto& a = *call.in[operand];
      a = made_by(x.primitive_ptr(), x.shape(), a.dtype(), {a});
    }
  }
}

void norm_first(NormCall& call, const Match& match, const array&) {
  const auto& with = call.spec.has(kWeight) ? call.spec : match.inner->spec;
  call.spec.rounding = with.rounding;
  call.spec.weight_offset = with.weight_offset;
  call.spec.norm_first = true;
  call.spec.alpha = match.number;
  if (const auto& weight = match.inner->in[kWeight]) {
    call.set(kPostWeight, *weight);
  }
}

} // namespace

const std::vector<Rule>& rules() {
  using enum Counted;
  using enum At;
  using enum Ask;
  static const std::vector<Rule> all{
      // y.astype(dtype)
      {Cast, Result, Takers, may_be_narrowed, narrowed, narrow},
      // y * (1 + scale)
      {ScaleAndShift,
       Result,
       Holders,
       [](auto& c) { return may_be_modulated(c) && !c.spec.is_modulated(); },
       product(y, scale),
       widen},
      // y + shift
      {ScaleAndShift,
       Result,
       Holders,
       [](auto& c) { return may_be_modulated(c) && !c.spec.has(kShift); },
       sum(y, shift),
       widen},
      // y * act(gate)
      {Gate, Result, Holders, may_be_gated, gated(gate, y), gate_result},
      // y * weight, y + bias, of groups
      {GroupParameters,
       Result,
       Takers,
       [](auto& c) { return is_bare_of_groups(c) && !c.spec.has(kWeight); },
       product(y, channels(kWeight)),
       nothing_more},
      {GroupParameters,
       Result,
       Takers,
       is_bare_of_groups,
       sum(y, channels(kBias)),
       nothing_more},
      // act(y)
      {Activation,
       Results,
       Takers,
       [](auto& c) { return c.spec.grouped && may_be_activated(c); },
       activation_of_groups,
       activate},
      {Activation,
       Results,
       Holders,
       [](auto& c) { return !c.spec.grouped && may_be_activated(c); },
       activated(y),
       activate},
      // residual + norm(x), normalized
      {NormBefore,
       Parts,
       Holders,
       [](auto& c) { return c.is_of_rows(); },
       norm_before,
       norm_first},
      // x * act(gate), normalized
      {GateFirst, Input, Holders, may_be_gated, gate_first, gate_x},
      // x * weight, normalized
      {GateFirst,
       Input,
       Holders,
       [](auto& c) {
         return may_be_gated(c) && c.spec.rounding == Rounding::Early;
       },
       part(product(no_norm, weight_of_rows)),
       gate_x},
      // y * weight, y * act(gate), where y was of groups of channels
      {GroupParameters,
       Joined,
       Holders,
       [](auto& c) {
         return c.is_of_rows() && !c.spec.has(kWeight) &&
             !c.spec.gates_result() && !c.spec.center && !c.spec.is_modulated();
       },
       product(y, channels(kWeight)),
       nothing_more},
      {Gate, Joined, Holders, may_be_gated, gated(gate, y), gate_result},
      // (x + residual) * factor, of one element
      {Fused,
       Parts,
       Holders,
       may_take_sum,
       product(part(sum(any(kX), any(kResidual))), one_element),
       [](auto& call, auto&, auto&) { call.spec.factor_of_sum = true; }},
      // clamp(x + residual)
      {Fused,
       Parts,
       Holders,
       may_take_sum,
       clamped,
       [](auto& call, auto&, auto&) { call.spec.clamp = true; }},
      // residual + x * factor; rounding late, the product would not be rounded
      {Fused,
       Parts,
       Holders,
       [](auto& c) {
         return may_take_sum(c) && c.spec.rounding == Rounding::Early;
       },
       sum(any(kResidual), part(factored)),
       [](auto& call, auto& match, auto&) { call.spec.factor = match.number; }},
      // residual2 + (x + residual)
      {Fused,
       Parts,
       Holders,
       may_take_sum,
       sum(any(kResidual2), part(sum(any(kX), any(kResidual)))),
       nothing_more},
      // x + residual
      {Fused,
       Sum,
       Holders,
       may_take_sum,
       sum(any(kX), any(kResidual)),
       nothing_more},
  };
  return all;
}

TakenOperands take_operands(NormCall& call) {
  TakenOperands taken;
  auto is_made = [](const OptionalArray& a) { return a && is_pending(*a); };
  if (!may_be_modulated(call) ||
      call.spec.operands.without({kX, kWeight, kBias}).count() > 0 ||
      !(is_made(call.in[kWeight]) || is_made(call.in[kBias]) ||
        is_pending(call.x(), "AsType"))) {
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
  auto shifted = trial.in[kWeight] && call.spec.weight_offset == 0.0f
      ? as_shifted(*trial.in[kWeight])
      : std::nullopt;
  if (shifted) {
    trial.in[kWeight] = shifted->weight;
    trial.spec.weight_offset = shifted->offset;
    trial.spec.rounding = Rounding::Late;
    taken.any = taken.offset = true;
  }
  if (!taken.any || !trial.made()) {
    return {};
  }
  call = std::move(trial);
  return taken;
}

} // namespace mlx_norms
