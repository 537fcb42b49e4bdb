// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <ranges>
#include <unordered_map>
#include <unordered_set>

#include "csrc/common/checks.h"
#include "csrc/patching/plans.h"
#include "csrc/patching/rules.h"
#include "csrc/patching/written.h"

namespace mlx_norms {

namespace {

constexpr int kMaxNodes = 6; // of an activation

// Whether all that takes `y` has no other result than `top`.
bool leads_only_to(
    const Graph& graph,
    const array& y,
    const array& top,
    Ask ask) {
  return graph.all_takers(y, [&](const array& taker) {
    auto* a = &taker;
    for (int i = 0; a && a->id() != top.id(); ++i) {
      a = i < kMaxNodes && graph.is_part(*a, ask) ? graph.sole_taker(*a, ask)
                                                  : nullptr;
    }
    return a != nullptr;
  });
}

// The only result of all that takes `y`, if it is an activation of it; or null.
const array* activation_of(const Graph& graph, const array& y, Ask ask) {
  if (graph.is_kept(y, ask) || graph.is_taken(y)) {
    return nullptr;
  }
  int uses = 0;
  const array* last = nullptr;
  graph.for_takers(y, [&](const array& taker) {
    ++uses;
    last = &taker;
  });
  for (int i = 0; last && i < kMaxNodes; ++i) {
    auto found = as_activation(*last);
    if (found && found->of.id() == y.id() && found->uses == uses) {
      bool is_only =
          !graph.rewrite_of(*last) && leads_only_to(graph, y, *last, ask);
      return is_only ? last : nullptr;
    }
    last = graph.sole_taker(*last, ask);
  }
  return nullptr;
}

// The norms that are written in operations, by their results.
using Calls = std::unordered_map<std::uintptr_t, NormCall>;

// One norm, to which rules are applied.
class Around {
 public:
  // `old` are the arrays that it computes so far.
  Around(
      Graph& graph,
      const Calls& written,
      const CallOf& call_of,
      NormCall call,
      Arrays old,
      Sides sides,
      bool sums_alone)
      : graph_(graph),
        written_(written),
        call_of_(call_of),
        call_(std::move(call)),
        old_(std::move(old)),
        first_(old_[0]),
        sides_(sides),
        sums_alone_(sums_alone) {}

  void apply_rules() {
    auto is_taken = [this](const Rule& rule) { return take(rule); };
    auto rule = rules().begin();
    do { // what can follow a sum was looked for before
      rule = std::ranges::find_if(rules(), is_taken);
    } while (rule != rules().end() && rule->at < At::Sum);
  }

  // What the report calls what has been taken besides a sum.
  const std::vector<Counted>& taken() const {
    return taken_;
  }
  // Whether a sum was; or why not, if it might have been.
  Counted outcome() const {
    return !taken_.empty() && outcome_ != Counted::Fused ? Counted::WithOthers
                                                         : outcome_;
  }
  const OptionalArray& norm_before() const {
    return norm_before_;
  }

  // Plans what it has come to. Returns whether that could be.
  bool plan() {
    auto made = made_ ? std::move(made_) : call_.made();
    if (!made || (last_ && graph_.rewrite_of(*last_))) {
      return false;
    }
    auto y = old_[0];
    leave_outputs();
    bool is_planned = graph_.add(
        {std::move(old_), std::move(made->node), std::move(made->inputs)});
    if (is_planned && last_) {
      graph_.add({{*last_}, join_->primitive_ptr(), {y}});
    }
    return is_planned;
  }

 private:
  // Whoever holds the norm's first result has it by outputs of its own: the
  // others are those of what is planned.
  void leave_outputs() {
    if (first_.siblings().empty() || first_.id() == old_[0].id()) {
      return;
    }
    Arrays alone{first_};
    for (const auto& a : first_.siblings()) {
      alone.push_back(mx::zeros(a.shape(), a.dtype(), call_.stream));
    }
    graph_.add({std::move(alone), first_.primitive_ptr(), first_.inputs()});
  }

  // Where the rule's pattern has to be, and what it knows as the result.
  struct Place {
    const array* root = nullptr;
    const array* y = nullptr;
  };

  // Rules that look at one place follow each other.
  Place place_of(const Rule& rule) {
    if (!place_ || place_->first != std::pair(rule.at, rule.ask)) {
      auto place = find_place(rule);
      place_.emplace(
          std::pair(rule.at, rule.ask),
          is_free(place, rule.at) ? place : Place{});
    }
    return place_->second;
  }

  Place find_place(const Rule& rule) const {
    const auto& y = old_[0];
    switch (rule.at) {
      case At::Result:
        return {graph_.sole_taker(y, rule.ask), &y};
      case At::Results:
        return {activation_of(graph_, y, rule.ask), &y};
      case At::Joined: {
        auto* joined = last_ ? &*last_ : graph_.sole_taker(y, rule.ask);
        bool joins = joined && old_.size() == 1 &&
            (last_ ||
             (joins_last_axes(*joined, y) && joined->ndim() + 1 == y.ndim()));
        return joins ? Place{graph_.sole_taker(*joined, rule.ask), joined}
                     : Place{};
      }
      case At::Input:
        return {&call_.x(), &y};
      case At::Sum:
      case At::Parts:
        return {call_.spec.has(kResidual) ? &old_[1] : &call_.x(), &y};
    }
    return {};
  }

  // What nothing is planned for, and a norm after which it is can have.
  bool is_free(const Place& place, At at) const {
    auto [root, y] = place;
    return root && graph_.is_inner(*root) && !graph_.rewrite_of(*root) &&
        (at >= At::Input ? !written_.contains(root->id())
                         : root->shape() == y->shape() && is_on_stream(*root) &&
                 takes_dtype(root->dtype()));
  }

  bool take(const Rule& rule) {
    bool is_sum = rule.counted == Counted::Fused;
    bool is_there = rule.at < At::Input ? sides_.after
        : rule.at == At::Parts          ? sides_.parts
                                        : sides_.before;
    if (!is_there || (sums_alone_ && !is_sum) || !rule.when(call_)) {
      return false;
    }
    auto [found, y] = place_of(rule);
    if (!found) {
      return false;
    }
    const auto& root = *found;
    Match match;
    Site site{graph_, call_of_, call_, *y, rule.ask};
    if (!rule.pattern(site, root, match)) {
      return false;
    }
    auto trial = call_;
    for (auto& [operand, a] : match.operands) {
      trial.set(operand, a);
    }
    rule.becomes(trial, match, root);
    if (rule.at == At::Joined) {
      split(trial, match);
    }
    std::optional<Made> made;
    auto outcome = may_become(trial, rule.at, root, made);
    if (is_sum && (outcome_ == Counted::Alone || outcome == Counted::Fused)) {
      outcome_ = outcome;
    }
    if (outcome != Counted::Fused) {
      return false;
    }
    commit(rule, match, root, *y);
    call_ = std::move(trial);
    made_ = std::move(made);
    place_.reset();
    return true;
  }

  bool is_on_stream(const array& a) const {
    return a.primitive().stream() == call_.stream;
  }

  // As the norm's result is, of the operands after it.
  void split(NormCall& trial, const Match& match) const {
    const auto& y = old_[0];
    for (const auto& [operand, a] : match.operands) {
      auto shape =
          operand == kWeight ? mx::Shape{y.shape(-2), y.shape(-1)} : y.shape();
      trial.set(operand, mx::reshape(*trial.in[operand], shape, call_.stream));
    }
  }

  // Counted::Fused, or why the norm cannot become this: all that uses a sum
  // would come to depend on the norm's parameters.
  Counted may_become(
      const NormCall& trial,
      At at,
      const array& root,
      std::optional<Made>& made) const {
    bool takes_sum = at >= At::Sum && old_.size() == 1;
    if (at >= At::Sum && !is_on_stream(root)) {
      return Counted::OtherStream;
    }
    for (auto operand : kAddends) {
      if (takes_sum && trial.in[operand] &&
          repeats_along_row(*trial.in[operand])) {
        return Counted::OperandRepeated;
      }
    }
    const array* sum = takes_sum ? &root : old_.size() > 1 ? &old_[1] : nullptr;
    auto others = takes_sum ? trial.spec.operands.without(kOfSum)
                            : trial.spec.operands.without(call_.spec.operands);
    for (auto operand : sum ? others : Operands{}) {
      auto relation = graph_.relation(*trial.in[operand], *sum);
      if (relation == Graph::Relation::Dependent) {
        return Counted::ParameterOfSum;
      }
      if (relation == Graph::Relation::Unknown) {
        return Counted::ParameterGraphLong;
      }
      // The sum may outlive the transform.
      if (relation == Graph::Relation::Traced && takes_sum) {
        return Counted::ParameterTraced;
      }
    }
    made = trial.made();
    return made ? Counted::Fused : Counted::FusedNoKernel;
  }

  // Copies the match: a place's arrays may be those of this norm.
  void commit(const Rule& rule, const Match& match, array root, array y) {
    if (rule.counted != Counted::Fused &&
        !(call_.spec.grouped && std::ranges::count(taken_, rule.counted))) {
      taken_.push_back(rule.counted);
    }
    if (rule.at == At::Joined) {
      join_ = last_ ? join_ : OptionalArray(y);
      last_ = root;
    } else if (rule.at < At::Input) {
      old_[0] = root;
    } else if (rule.at >= At::Sum && old_.size() == 1) {
      old_.push_back(root);
    }
    if (match.inner_result) {
      norm_before_ = match.inner_result;
    }
  }

  Graph& graph_;
  const Calls& written_;
  const CallOf& call_of_;
  NormCall call_;
  std::optional<Made> made_; // what computes that, if it is known
  Arrays old_;               // y, [sum]
  array first_;              // y at first
  Sides sides_;
  std::optional<std::pair<std::pair<At, Ask>, Place>> place_; // the latest
  bool sums_alone_;
  std::vector<Counted> taken_;
  Counted outcome_ = Counted::Alone;
  OptionalArray norm_before_;
  // What joins groups of channels, and the last that was taken after it.
  OptionalArray join_, last_;
};

class Pass {
 public:
  Pass(Graph& graph, const Prospects& prospects, bool joins)
      : graph_(graph),
        prospects_(prospects),
        joins_(joins) {}

  void run() {
    if (!sums_alone_) {
      for (const auto* a : graph_.all(Kind::Root) | std::views::reverse) {
        find_written(*a);
      }
    }
    if (prospects_.ropes) {
      for (const auto& normalized : plan_ropes(graph_, call_of_)) {
        within_other_.insert(normalized.id());
      }
    }
    for (auto& [output, call, kind] : written_) {
      Arrays old = call.statistics();
      old.insert(old.begin(), output);
      plan(around(call, std::move(old), {}), output, kind);
    }
    const auto& norms = graph_.all(Kind::Norm);
    for (size_t i = norms.size(); i-- > 0;) {
      const auto& a = *norms[i];
      bool is_first = a.siblings().empty() || a.outputs()[0].id() == a.id();
      auto sides = written_.empty() ? prospects_.sides[i] : Sides{};
      if (is_first && !graph_.rewrite_of(a) && sides.any()) {
        plan_norm(a, sides);
      }
    }
    if (!sums_alone_) {
      for (const auto* a : graph_.all(Kind::GroupNorm) | std::views::reverse) {
        if (a->outputs()[0].id() == a->id() && !graph_.rewrite_of(*a)) {
          plan_norm(*a, {});
        }
      }
      if (joins_ && prospects_.beside) {
        plan_side_by_side(graph_, within_other_);
      }
    }
  }

 private:
  void find_written(const array& root) {
    auto found = written_norm(root, graph_);
    if (!found || calls_.contains(found->output.id()) || !found->call.made()) {
      return;
    }
    for (auto operand : {kWeight, kBias}) {
      const auto& a = found->call.in[operand];
      if (a && !graph_.is_independent(*a, found->call.x())) {
        return;
      }
    }
    calls_.emplace(found->output.id(), found->call);
    written_.push_back(std::move(*found));
  }

  Around around(NormCall call, Arrays old, Sides sides) const {
    return {
        graph_,
        calls_,
        call_of_,
        std::move(call),
        std::move(old),
        sides,
        sums_alone_};
  }

  // A norm that is a node.
  void plan_norm(const array& a, Sides sides) {
    auto call = within_other_.contains(a.id()) ? std::nullopt : NormCall::of(a);
    if (!call) {
      return;
    }
    auto operands = is_call(a) ? take_operands(*call) : TakenOperands{};
    operands.any |= is_mlx_norm(name_of(a));
    plan(around(std::move(*call), a.outputs(), sides), a, {}, operands);
  }

  // Plans the norm `a` with what stands around it, if anything does or its
  // operands are others.
  void plan(
      Around around,
      const array& a,
      std::optional<Counted> written,
      TakenOperands operands = {}) {
    if (within_other_.contains(a.id())) {
      count_written(written);
      return;
    }
    around.apply_rules();
    auto outcome = around.outcome();
    bool takes_sum = outcome == Counted::Fused;
    bool is_better =
        written || operands.any || takes_sum || !around.taken().empty();
    if (is_better && !around.plan()) {
      return;
    }
    bool counts = is_counted(a);
    bool was_call = !written && recounted(a, outcome);
    if (!is_better) {
      return;
    }
    if (const auto& inner = around.norm_before()) {
      within_other_.insert(inner->id());
      recounted(*inner, Counted::WithOthers);
    }
    if (!counts) {
      return;
    }
    count(Counted::SumsOfNorms, takes_sum && !was_call);
    count(Counted::Offsets, operands.offset);
    count_written(written);
    for (auto each : around.taken()) {
      count(each);
    }
  }

  // Counts a norm of a call, or of MLX's, as one in a function compiled before.
  static bool recounted(const array& a, Counted outcome) {
    if (is_mlx_norm(name_of(a))) {
      count(outcome);
      return true;
    }
    return outcome != Counted::Alone && recount(a, outcome);
  }

  static void count_written(std::optional<Counted> written) {
    if (written) {
      count(*written);
    }
  }

  Graph& graph_;
  const Prospects& prospects_;
  bool joins_; // norms side by side
  // A trace of shapes alone tells little of what they will be.
  const bool sums_alone_ = in_shapeless_trace(graph_.roots()[0]);
  std::vector<WrittenNorm> written_;
  Calls calls_; // the same
  const CallOf call_of_ = [this](const array& a) {
    auto it = calls_.find(a.id());
    return it == calls_.end() ? NormCall::of(a) : it->second;
  };
  std::unordered_set<std::uintptr_t> within_other_; // part of the next norm
};

} // namespace

void plan_around(Graph& graph, const Prospects& prospects, bool joins) {
  Pass(graph, prospects, joins).run();
}

} // namespace mlx_norms
