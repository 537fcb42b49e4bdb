// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/plan_around.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "csrc/norm/channels/channel_norm.h"
#include "csrc/patching/beside_norm.h"
#include "csrc/patching/fusion.h"
#include "csrc/patching/joined_groups.h"
#include "csrc/patching/norm_before.h"
#include "csrc/patching/norm_call.h"
#include "csrc/patching/plan_channels.h"
#include "csrc/patching/rope_of_norm.h"
#include "csrc/patching/side_by_side.h"
#include "csrc/patching/written_op.h"
#include "mlx/mlx.h"

namespace mlx_norms {

namespace {

using Id = std::uintptr_t;

bool is_one_of(const array& a, std::initializer_list<std::string_view> names) {
  return is_pending(a) &&
      std::ranges::find(names, a.primitive().name()) != names.end();
}

bool is_compiled(const array& a) {
  return is_pending(a) && dynamic_cast<mx::Compiled*>(&a.primitive());
}

bool is_norm_alone(const array& a) {
  auto* norm = op_of<Norm>(a);
  return norm && !norm->spec.has(kResidual);
}

// Whether anything beside this norm of ours may become part of it, by the
// operations next to it: nearly all that a patched call has fused have none.
bool may_take_more(const array& norm, const PendingGraph& graph) {
  auto& spec = static_cast<Node<Norm>&>(norm.primitive()).op().spec;
  const auto& in = norm.inputs();
  const auto& x = before_reshape(in[0]);
  bool before = spec.has(kResidual)
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
    is_reshape(taker.primitive().name()) ? graph.for_takers(taker, look)
                                         : look(taker);
  });
  return before || after;
}

class Pass {
 public:
  Pass(RewrittenGraph& graph, bool joins)
      : graph_(graph),
        is_looking_around_(!in_shapeless_trace(graph.outputs()[0])),
        joins_(joins) {}

  void run() {
    if (is_looking_around_) {
      for_far_first(
          graph_.before().powers(), [&](const array& a) { find_inline(a); });
    }
    auto call_of = [this](const array& a) { return this->call_of(a); };
    for (const auto& normalized : plan_ropes(graph_, call_of)) {
      within_other_.insert(normalized.id());
    }
    for (auto& [output, call, kind] : inline_) {
      plan(output, call, kind);
    }
    for_far_first(graph_.before().norms(), [&](const array& a) {
      bool is_first = a.siblings().empty() || a.outputs()[0].id() == a.id();
      if (!is_first || graph_.rewrite_of(a) ||
          (inline_.empty() && !may_take_more(a, graph_.before()))) {
        return;
      }
      if (auto call = NormCall::of(a)) {
        plan(a, std::move(*call), std::nullopt);
      }
    });
    if (is_looking_around_) {
      for_far_first(graph_.before().channel_norms(), [&](const array& a) {
        plan_channels(graph_, a);
      });
      if (joins_) {
        join_side_by_side(graph_, within_other_);
      }
    }
    count_graph_pass(n_sums_);
  }

 private:
  template <typename F>
  static void for_far_first(const std::vector<const array*>& nodes, F visit) {
    std::for_each(
        nodes.rbegin(), nodes.rend(), [&](const array* a) { visit(*a); });
  }

  void find_inline(const array& power) {
    auto found = inline_norm(power, graph_.before());
    if (!found || calls_.contains(found->output.id()) ||
        graph_.rewrite_of(found->output)) {
      return;
    }
    for (const auto& parameter : found->parameters) {
      if (!graph_.is_independent(parameter, found->x)) {
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
    plan_channel_norm(
        graph_, found->output, op, call.inputs(), call.stream, kind);
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
    TakenOperands operands;
    if (written) {
      taken.push_back(*written);
    } else if (is_counted(a)) {
      operands = take_operands(call);
    }
    Rewrite rewrite{{a}, nullptr, {}};
    for (const auto& sibling : written ? Arrays{} : a.siblings()) {
      rewrite.old.push_back(sibling);
    }
    std::optional<Rewrite> join;
    OptionalArray inner;
    if (is_looking_around_) {
      while (auto follower = take_follower(graph_, call, rewrite.old)) {
        taken.push_back(*follower);
      }
      auto call_of = [this](const array& a) { return this->call_of(a); };
      inner = take_norm_before(graph_, call_of, call, rewrite);
      if (inner) {
        taken.push_back(Taken::NormBefore);
      } else if (take_gate_first(graph_, call)) {
        taken.push_back(Taken::GateFirst);
      }
      if (!rewrite.node && rewrite.old.size() == 1) {
        join = take_after_join(graph_, call, rewrite.old[0], taken);
      }
    }
    auto outcome = rewrite.node ? Outcome::WithOthers : take_sum(call, rewrite);
    bool takes_sum = outcome == Outcome::Fused;
    if (!takes_sum && !taken.empty()) {
      outcome = Outcome::WithOthers;
    }
    if (!takes_sum && taken.empty() && !operands.any) {
      recount_unless_written(a, outcome, written);
      return;
    }
    if (!rewrite.node) {
      rewrite.node = call.node();
      rewrite.inputs = call.inputs();
    }
    bool is_join_taken = join && graph_.rewrite_of(join->old[0]);
    if (is_join_taken || !graph_.add(std::move(rewrite))) {
      return;
    }
    bool was_call = recount_unless_written(a, outcome, written);
    n_sums_ += takes_sum && !was_call;
    if (operands.offset) {
      count_offset();
    }
    for (auto each : taken) {
      count(each);
    }
    if (join) {
      graph_.add(std::move(*join));
    }
    if (inner) {
      within_other_.insert(inner->id());
      recount(*inner, Outcome::WithOthers);
    }
  }

  // Of a patched call; returns whether it is one.
  static bool recount_unless_written(
      const array& a,
      Outcome outcome,
      std::optional<Taken> written) {
    return !written && outcome != Outcome::Alone && recount(a, outcome);
  }

  // Outcome::Fused, or why not.
  Outcome take_sum(const NormCall& call, Rewrite& rewrite) {
    const auto& spec = call.spec;
    const auto& sum = call.x();
    if (!spec.is_of_mean_and_eps() || spec.is_gated() || spec.has(kResidual) ||
        spec.is_factored() || !graph_.before().is_inner(sum) ||
        graph_.rewrite_of(sum) || calls_.contains(sum.id())) {
      return Outcome::Alone;
    }
    auto [fused, outcome] = fused_norm(
        spec,
        call.dtype,
        sum,
        call.inputs(spec.operands.without({kX})),
        call.stream,
        graph_.inputs_after(),
        [this](const array& in) { return graph_.is_part(in); },
        kFarWalk);
    if (!fused) {
      return outcome;
    }
    rewrite.old.push_back(sum);
    rewrite.node = std::move(fused->node);
    rewrite.inputs = std::move(fused->inputs);
    return Outcome::Fused;
  }

  // The norm that `a` is, with what has been made part of it so far.
  std::optional<NormCall> call_of(const array& a) const {
    auto it = calls_.find(a.id());
    return it == calls_.end() ? NormCall::of(a) : it->second;
  }

  RewrittenGraph& graph_;
  bool is_looking_around_; // not at sums alone
  bool joins_;             // norms side by side
  int n_sums_ = 0;
  struct Inline {
    array output;
    NormCall call;
    Taken kind;
  };
  std::vector<Inline> inline_; // norms of rows written in operations
  std::unordered_map<Id, NormCall> calls_; // the same by their outputs
  std::unordered_set<Id> within_other_; // norms that are part of the next one
};

} // namespace

bool may_plan_around(const PendingGraph& graph) {
  auto any = [](const std::vector<const array*>& nodes, auto test) {
    return std::ranges::any_of(nodes, [&](const array* a) { return test(*a); });
  };
  return !graph.channel_norms().empty() || may_stand_side_by_side(graph) ||
      any(graph.ropes(), is_rope_of_norm) || any(graph.powers(), may_be_root) ||
      any(graph.norms(),
          [&](const array& a) { return may_take_more(a, graph); });
}

void plan_around(RewrittenGraph& graph, bool joins) {
  Pass(graph, joins).run();
}

} // namespace mlx_norms
