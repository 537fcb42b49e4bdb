// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/fuse_graph.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "csrc/common/checks.h"
#include "csrc/group_norm/group_norm.h"
#include "csrc/norm/channels/channel_norm.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/patching/followers.h"
#include "csrc/patching/fusion.h"
#include "csrc/patching/norm_call.h"
#include "csrc/patching/pending_graph.h"
#include "csrc/patching/written_op.h"
#include "mlx/mlx.h"

namespace mlx_norms {

namespace {

using Id = std::uintptr_t;

constexpr size_t kNodes = 512; // about as many as a few layers have
constexpr int kFarWalk = 256;  // above a scale, as from a model's timestep

// A node that takes the place of others, and the arrays that its outputs
// replace.
struct Rewrite {
  Arrays old;
  std::shared_ptr<mx::Primitive> node;
  Arrays inputs; // of the graph as it was
};

bool is_one_of(const array& a, std::initializer_list<std::string_view> names) {
  return is_pending(a) &&
      std::ranges::find(names, a.primitive().name()) != names.end();
}

bool is_compiled(const array& a) {
  return is_pending(a) && dynamic_cast<mx::Compiled*>(&a.primitive());
}

bool is_norm_alone(const array& a) {
  auto* node =
      is_pending(a) ? dynamic_cast<Node<Norm>*>(&a.primitive()) : nullptr;
  return node && !node->op().spec.has(kResidual);
}

// Whether anything beside this norm of ours may become part of it, by the
// operations next to it: nearly all that a patched call has fused have none.
bool may_take_more(const array& norm, const PendingGraph& graph) {
  auto& spec = static_cast<Node<Norm>&>(norm.primitive()).op().spec;
  const auto& in = norm.inputs();
  bool before = spec.has(kResidual)
      ? is_norm_alone(in[0]) || is_norm_alone(in[1])
      : is_one_of(in[0], {"Add", "Multiply"}) || is_compiled(in[0]);
  bool after = false;
  graph.for_takers(norm, [&](const array& taker) {
    after |=
        is_one_of(
            taker,
            {"AsType", "Multiply", "Add", "Sigmoid", "Divide", "Maximum"}) ||
        is_compiled(taker);
  });
  return before || after;
}

bool may_find(const PendingGraph& graph, bool written) {
  auto any = [](const std::vector<const array*>& nodes, auto test) {
    return std::ranges::any_of(nodes, [&](const array* a) { return test(*a); });
  };
  return !graph.group_norms().empty() ||
      (written && any(graph.powers(), may_be_root)) ||
      any(graph.norms(),
          [&](const array& a) { return may_take_more(a, graph); });
}

class Pass {
 public:
  Pass(const Arrays& outputs, const Arrays& boundary, bool written)
      : outputs_(outputs),
        graph_(outputs, kNodes, boundary),
        written_(written) {}

  Arrays run() {
    is_looking_around_ = !in_shapeless_trace(outputs_[0]);
    if (written_ && is_looking_around_) {
      for_far_first(graph_.powers(), [&](const array& a) { find_inline(a); });
    }
    for (auto& [output, call, kind] : inline_) {
      plan(output, call, kind);
    }
    for_far_first(graph_.norms(), [&](const array& a) {
      bool is_first = a.siblings().empty() || a.outputs()[0].id() == a.id();
      if (!is_first || rewrite_of(a) ||
          (inline_.empty() && !may_take_more(a, graph_))) {
        return;
      }
      if (auto call = NormCall::of(a)) {
        plan(a, std::move(*call), std::nullopt);
      }
    });
    if (is_looking_around_) {
      for_far_first(
          graph_.group_norms(), [&](const array& a) { plan_groups(a); });
    }
    if (rewrites_.empty()) {
      return outputs_;
    }
    for (auto& a : in_order()) {
      build(a);
    }
    count_graph_pass(n_sums_);
    return present(outputs_);
  }

 private:
  template <typename F>
  static void for_far_first(const std::vector<const array*>& nodes, F visit) {
    std::for_each(
        nodes.rbegin(), nodes.rend(), [&](const array* a) { visit(*a); });
  }

  const Rewrite* rewrite_of(const array& a) const {
    auto it = rewrite_by_array_.find(a.id());
    return it == rewrite_by_array_.end() ? nullptr : &rewrites_[it->second];
  }

  // The inputs of a node after all that is planned.
  const Arrays& inputs_of(const array& a) const {
    static const Arrays none;
    auto* rewrite = rewrite_of(a);
    return rewrite              ? rewrite->inputs
        : graph_.is_boundary(a) ? none
                                : a.inputs();
  }

  // An output of the only operation that takes `a`, once; null: others do, too.
  const array* sole_taker(const array& a) const {
    if (!graph_.is_inner(a) || graph_.is_root(a)) {
      return nullptr;
    }
    const array* found = nullptr;
    bool others = false;
    graph_.for_takers(a, [&](const array& taker) {
      found = found ? found : &taker;
      others |= taker.primitive_id() != found->primitive_id();
    });
    return found && !others && times_taken(a, *found) == 1 ? found : nullptr;
  }

  static int times_taken(const array& a, const array& taker) {
    return std::ranges::count_if(
        taker.inputs(), [&](const array& in) { return in.id() == a.id(); });
  }

  // Whether an operand is known not to be computed from `a`.
  bool is_independent(const array& operand, const array& a) const {
    auto above = look_above(operand, a, inputs_after(), kFarWalk);
    return above.ends && !above.meets;
  }

  InputsOf inputs_after() const {
    return [this](const array& a) -> const Arrays& { return inputs_of(a); };
  }

  void add(Rewrite rewrite) {
    for (const auto& a : rewrite.old) {
      rewrite_by_array_[a.id()] = rewrites_.size();
    }
    rewrites_.push_back(std::move(rewrite));
  }

  void find_inline(const array& power) {
    auto found = inline_norm(power, graph_);
    if (!found || calls_.contains(found->output.id()) ||
        rewrite_of(found->output)) {
      return;
    }
    for (const auto& parameter : found->parameters) {
      if (!is_independent(parameter, found->x)) {
        return;
      }
    }
    auto kind = static_cast<Taken>(found->norm.kind);
    auto call = NormCall::of(*found);
    int axis = found->norm.axis - static_cast<int>(found->x.ndim());
    if (axis == -1) {
      if (call.runs()) {
        calls_.emplace(found->output.id(), call);
        inline_.push_back({found->output, std::move(call), kind});
      }
      return;
    }
    ChannelNorm op{call.spec, axis, call.dtype};
    auto inputs = call.inputs();
    if (has_kernel(op, inputs, call.stream)) {
      count(kind);
      auto node = std::make_shared<Node<ChannelNorm>>(call.stream, op);
      add({{found->output}, std::move(node), std::move(inputs)});
    }
  }

  // Plans to compute the norm `a` with what stands around it; it is a node of
  // this package unless it is written in operations.
  void plan(const array& a, NormCall call, std::optional<Taken> written) {
    if (within_other_.contains(a.id())) {
      if (written) {
        count(*written);
      }
      return;
    }
    std::vector<Taken> taken;
    if (written) {
      taken.push_back(*written);
    }
    Rewrite rewrite{{a}, nullptr, {}};
    for (const auto& sibling : written ? Arrays{} : a.siblings()) {
      rewrite.old.push_back(sibling);
    }
    if (is_looking_around_) {
      while (auto follower = take_follower(call, rewrite.old)) {
        taken.push_back(*follower);
      }
      if (take_norm_before(call, rewrite)) {
        taken.push_back(Taken::NormBefore);
      } else if (take_gate_first(call)) {
        taken.push_back(Taken::GateFirst);
      }
    }
    if (!rewrite.node && take_sum(call, rewrite)) {
      ++n_sums_;
    } else if (taken.empty()) {
      return;
    }
    if (!rewrite.node) {
      rewrite.node = call.node();
      rewrite.inputs = call.inputs();
    }
    for (auto each : taken) {
      count(each);
    }
    add(std::move(rewrite));
  }

  // Makes the operation that takes the norm's result part of the norm, if it
  // can be.
  std::optional<Taken> take_follower(NormCall& call, Arrays& old) const {
    const auto y = old[0];
    if (!graph_.is_inner(y) || graph_.is_root(y)) {
      return std::nullopt;
    }
    if (auto* next = sole_taker(y)) {
      if (next->primitive().stream() != call.stream ||
          next->shape() != y.shape() || !takes_dtype(next->dtype())) {
        return std::nullopt;
      }
      for (auto take :
           {&Pass::take_cast,
            &Pass::take_scale,
            &Pass::take_shift,
            &Pass::take_gate}) {
        auto trial = call;
        auto taken = (this->*take)(trial, y, *next);
        if (taken && is_acyclic(trial, old) && trial.runs()) {
          call = std::move(trial);
          old[0] = *next;
          return taken;
        }
      }
    }
    auto trial = call;
    if (auto* top = take_activation(trial, y); top && trial.runs()) {
      call = std::move(trial);
      old[0] = *top;
      return Taken::Activation;
    }
    return std::nullopt;
  }

  // Whether the sum that the norm computes, too, is not above its operands.
  bool is_acyclic(const NormCall& call, const Arrays& old) const {
    return old.size() == 1 ||
        std::ranges::all_of(
               call.inputs(call.spec.operands.without(
                   {kX, kResidual, kFactor, kWeight, kBias})),
               [&](const array& a) { return is_independent(a, old[1]); });
  }

  std::optional<Taken>
  take_cast(NormCall& call, const array&, const array& next) const {
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
  static void widen(NormCall& call, const array& next) {
    call.dtype = next.dtype();
  }

  static bool may_be_modulated(const NormCall& call) {
    return !call.spec.l2 && !call.spec.is_gated();
  }

  static bool broadcasts(const array& a, const array& x) {
    int missing = static_cast<int>(x.ndim()) - static_cast<int>(a.ndim());
    bool fits = missing >= 0 && a.ndim() > 0 && a.shape(-1) == x.shape(-1) &&
        takes_dtype(a.dtype());
    for (int i = 0; fits && i < static_cast<int>(a.ndim()); ++i) {
      fits = a.shape(i) == 1 || a.shape(i) == x.shape(missing + i);
    }
    return fits;
  }

  std::optional<Taken>
  take_scale(NormCall& call, const array& y, const array& next) const {
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

  std::optional<Taken>
  take_shift(NormCall& call, const array& y, const array& next) const {
    auto* term = beside(y, next, "Add");
    if (!term || !may_be_modulated(call) || call.spec.has(kShift)) {
      return std::nullopt;
    }
    const auto& shift = before_broadcast(*term);
    // Without a scale, a sum of rows is a residual's.
    bool is_row = shift.id() != term->id();
    if ((!call.spec.has(kScale) && !is_row) || !broadcasts(shift, call.x())) {
      return std::nullopt;
    }
    call.set(kShift, shift);
    widen(call, next);
    return Taken::ScaleAndShift;
  }

  static bool may_be_gated(const NormCall& call) {
    return !call.spec.center && !call.spec.l2 && !call.spec.has(kResidual) &&
        !call.spec.is_gated() && !call.spec.is_modulated();
  }

  std::optional<Taken>
  take_gate(NormCall& call, const array& y, const array& next) const {
    auto* gate = beside(y, next, "Multiply");
    if (!gate || !may_be_gated(call) || !sole_taker(*gate)) {
      return std::nullopt;
    }
    auto activated = as_activation(*gate);
    if (!activated || activated->of.shape() != call.x().shape() ||
        !takes_dtype(activated->of.dtype())) {
      return std::nullopt;
    }
    call.set(kGate, activated->of);
    call.spec.activation = activated->activation;
    widen(call, next);
    return Taken::Gate;
  }

  // The activation of `y` alone, to which all that takes it belongs; null:
  // there is none.
  const array* activation_of(const array& y, Activation& activation) const {
    constexpr int kMostNodes = 6;
    int uses = 0;
    const array* last = nullptr;
    graph_.for_takers(y, [&](const array& taker) {
      ++uses;
      last = &taker;
    });
    for (int i = 0; last && i < kMostNodes; ++i) {
      auto found = as_activation(*last);
      if (found && found->of.id() == y.id() && found->uses == uses) {
        activation = found->activation;
        return last;
      }
      last = sole_taker(*last);
    }
    return nullptr;
  }

  const array* take_activation(NormCall& call, const array& y) const {
    auto* top =
        may_be_gated(call) ? activation_of(y, call.spec.activation) : nullptr;
    bool fits = top && top->dtype() == call.dtype &&
        top->primitive().stream() == call.stream;
    return fits ? top : nullptr;
  }

  // x * act(z), which is normalized.
  bool take_gate_first(NormCall& call) const {
    const auto x = call.x();
    if (!may_be_gated(call) || !sole_taker(x) || !is_pending(x, "Multiply") ||
        x.primitive().stream() != call.stream) {
      return false;
    }
    for (int i : {1, 0}) {
      const auto& gate = x.inputs()[i];
      const auto& of = x.inputs()[1 - i];
      auto activated = sole_taker(gate) ? as_activation(gate) : std::nullopt;
      if (!activated || !is_like(of, x) || !is_like(activated->of, x)) {
        continue;
      }
      auto trial = call;
      trial.set(kX, of);
      trial.set(kGate, activated->of);
      trial.spec.activation = activated->activation;
      trial.spec.gate_first = true;
      if (trial.runs()) {
        call = std::move(trial);
        return true;
      }
    }
    return false;
  }

  bool take_sum(const NormCall& call, Rewrite& rewrite) {
    const auto& spec = call.spec;
    const auto& sum = call.x();
    if (spec.l2 || spec.is_gated() || spec.has(kResidual) ||
        spec.is_factored() || !graph_.is_inner(sum) || rewrite_of(sum)) {
      return false;
    }
    auto fused = fused_norm(
                     spec,
                     call.dtype,
                     sum,
                     call.inputs(spec.operands.without({kX})),
                     call.stream,
                     inputs_after(),
                     [this](const array& in) { return sole_taker(in); },
                     kFarWalk)
                     .first;
    if (!fused) {
      return false;
    }
    rewrite.old.push_back(sum);
    rewrite.node = std::move(fused->node);
    rewrite.inputs = std::move(fused->inputs);
    return true;
  }

  // The norm that `a` is, with what has been made part of it so far.
  std::optional<NormCall> call_of(const array& a) const {
    auto it = calls_.find(a.id());
    return it == calls_.end() ? NormCall::of(a) : it->second;
  }

  bool has_sum_planned(const array& norm) const {
    auto* rewrite = rewrite_of(norm);
    return rewrite && rewrite->old.size() > 1;
  }

  static bool is_rms(const NormCall& call, mx::Dtype dtype) {
    const auto& weight = call.in[kWeight];
    if (weight && !is_vector(*weight, call.x().shape(-1))) {
      return false;
    }
    return call.spec.is_basic() && !call.spec.center && !call.spec.clamp &&
        !call.spec.has(kBias) && call.dtype == dtype &&
        call.x().dtype() == dtype;
  }

  // residual + norm(x), which is normalized.
  bool take_norm_before(const NormCall& call, Rewrite& rewrite) {
    const auto& spec = call.spec;
    if (!is_rms(call, call.dtype)) {
      return false;
    }
    bool has_sum = spec.has(kResidual);
    const auto& sum = has_sum ? rewrite.old[1] : call.x();
    if (!has_sum &&
        (!graph_.is_inner(sum) || rewrite_of(sum) || !is_pending_sum(sum) ||
         sum.primitive().stream() != call.stream)) {
      return false;
    }
    const Arrays terms{
        has_sum ? call.x() : sum.inputs()[0],
        has_sum ? *call.in[kResidual] : sum.inputs()[1]};
    for (int i : {0, 1}) {
      auto before = sole_taker(terms[i]) ? call_of(terms[i]) : std::nullopt;
      const auto& residual = terms[1 - i];
      if (!before || !is_rms(*before, call.dtype) ||
          before->spec.has(kResidual) || has_sum_planned(terms[i]) ||
          before->stream != call.stream || before->spec.eps != spec.eps ||
          !is_like(residual, before->x()) ||
          (!has_sum && spec.has(kWeight) &&
           !is_independent(*call.in[kWeight], sum))) {
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
      within_other_.insert(terms[i].id());
      return true;
    }
    return false;
  }

  // Parameters and an activation outside of a group norm.
  void plan_groups(const array& a) {
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
    bool taken = false;
    for (auto [name, has, at] :
         {std::tuple("Multiply", &spec.weight, 1), {"Add", &spec.bias, 1}}) {
      auto* next = sole_taker(y);
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
      *has = taken = true;
      y = *next;
    }
    if (taken) {
      count(Taken::GroupParameters);
    }
    Activation activation = Activation::None;
    auto* top = graph_.is_root(y) ? nullptr : activation_of(y, activation);
    bool fits =
        activation == Activation::Silu || activation == Activation::Gelu;
    if (top && fits && is_like(*top, y) &&
        top->primitive().stream() == node->stream()) {
      spec.activation = activation;
      y = *top;
      taken = true;
      count(Taken::Activation);
    }
    if (taken && has_kernel(op, rewrite.inputs, node->stream())) {
      rewrite.node = std::make_shared<Node<GroupNorm>>(node->stream(), op);
      add(std::move(rewrite));
    }
  }

  // The inner nodes above the outputs, each after its inputs.
  Arrays in_order() const {
    struct Visit {
      array node;
      bool inputs_done;
    };
    Arrays order;
    std::unordered_set<Id> seen;
    std::vector<Visit> stack;
    for (auto& a : outputs_) {
      stack.push_back({a, false});
    }
    while (!stack.empty()) {
      auto [node, inputs_done] = std::move(stack.back());
      stack.pop_back();
      if (inputs_done) {
        order.push_back(std::move(node));
      } else if (
          is_pending(node) && !graph_.is_boundary(node) &&
          seen.insert(node.id()).second) {
        stack.push_back({node, true});
        for (auto& in : inputs_of(node)) {
          stack.push_back({in, false});
        }
      }
    }
    return order;
  }

  // The arrays, or what was rebuilt in their place.
  Arrays present(const Arrays& arrays) const {
    Arrays present;
    for (auto& a : arrays) {
      auto it = built_.find(a.id());
      present.push_back(it == built_.end() ? a : it->second);
    }
    return present;
  }

  void build(const array& a) {
    if (built_.count(a.id())) {
      return; // built with a sibling
    }
    if (auto* rewrite = rewrite_of(a)) {
      make(rewrite->old, rewrite->node, present(rewrite->inputs));
      return;
    }
    auto inputs = present(a.inputs());
    bool changed = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      changed |= inputs[i].id() != a.inputs()[i].id();
    }
    if (changed) {
      make(a.outputs(), a.primitive_ptr(), std::move(inputs));
    }
  }

  // Makes outputs of `node` that replace `old`.
  void make(
      const Arrays& old,
      const std::shared_ptr<mx::Primitive>& node,
      Arrays inputs) {
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    for (auto& a : old) {
      shapes.push_back(a.shape());
      dtypes.push_back(a.dtype());
    }
    auto arrays =
        array::make_arrays(std::move(shapes), dtypes, node, std::move(inputs));
    for (size_t i = 0; i < old.size(); ++i) {
      built_.emplace(old[i].id(), arrays[i]);
    }
  }

  const Arrays& outputs_;
  PendingGraph graph_;
  bool written_;
  bool is_looking_around_ = true; // not at sums alone
  int n_sums_ = 0;
  std::vector<Rewrite> rewrites_;
  std::unordered_map<Id, size_t> rewrite_by_array_;
  struct Inline {
    array output;
    NormCall call;
    Taken kind;
  };
  std::vector<Inline> inline_; // norms of rows written in operations
  std::unordered_map<Id, NormCall> calls_; // the same by their outputs
  std::unordered_set<Id> within_other_; // norms that are part of the next one
  std::unordered_map<Id, array> built_;
};

} // namespace

Arrays fuse_graph(
    const Arrays& outputs,
    const std::function<Arrays()>& boundary,
    bool written) {
  // What is given is asked for only then: it may be a model's parameters.
  bool looks = may_find(PendingGraph(outputs, kNodes), written);
  return looks ? Pass(outputs, boundary(), written).run() : outputs;
}

} // namespace mlx_norms
