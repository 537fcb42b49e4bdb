// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <optional>

#include "csrc/common/checks.h"
#include "csrc/norm/together.h"
#include "csrc/patching/plans.h"
#include "csrc/patching/report.h"

namespace mlx_norms {

namespace {

// Between a layer's norms the graph has some of other layers.
constexpr size_t kWindow = 6;

// A launch is little beside what norms of more elements take.
constexpr size_t kMaxElements = 1 << 20;

// Whether `a` has a value, or is computed from one alone without a norm, as by
// a cast.
bool is_given(const array& a, int walk = 8) {
  return !is_pending(a) ||
      (walk > 0 && a.inputs().size() == 1 && !op_of<Norm>(a) &&
       is_given(a.inputs()[0], walk - 1));
}

// Whether it is a small RMS or l2 norm alone, to which others may be joined on
// a GPU.
bool is_joinable(const array& a) {
  auto* norm = op_of<Norm>(a);
  if (!norm || !norm->others.empty() || a.size() == 0 ||
      a.size() > kMaxElements ||
      backend_of(a.primitive().stream()) == Backend::Cpu) {
    return false;
  }
  const auto& spec = norm->spec;
  return spec.axis == -1 && !spec.center && !spec.is_modulated() &&
      !spec.is_factored() && !spec.is_gated() && !spec.clamp &&
      !spec.identity && spec.operands.without({kX, kWeight}).count() == 0;
}

// Whether they have the same options but for a weight and a multiplier.
bool are_alike(const array& a, const array& b) {
  auto options = [](const array& of) {
    auto spec = op_of<Norm>(of)->spec;
    spec.operands.set(kWeight, false);
    spec.multiplier = 1.0f;
    return spec;
  };
  return a.primitive().stream() == b.primitive().stream() &&
      options(a) == options(b);
}

bool has_given_weight(const array& norm) {
  const auto& in = norm.inputs();
  return std::all_of(
      in.begin() + 1, in.end(), [](const array& a) { return is_given(a); });
}

// The other factor of a product; null: `a` is none of `operand`, or one of it
// and itself.
const array* other_factor(const array& operand, const array& a) {
  if (!is_pending(a, "Multiply") || !a.siblings().empty()) {
    return nullptr;
  }
  const auto& in = a.inputs();
  bool first = in[0].id() == operand.id();
  bool second = in[1].id() == operand.id();
  return first == second ? nullptr : &in[first ? 1 : 0];
}

// A norm, with the number that multiplies its result.
struct Member {
  const array* norm;
  array output;
  NormSpec spec;
  mx::Dtype dtype;
  Arrays inputs;
};

Member member_of(const Graph& graph, const array& a) {
  const auto& norm = *op_of<Norm>(a);
  Member member{&a, a, norm.spec, norm.dtypes[0], a.inputs()};
  auto* taker = graph.sole_taker(a, Ask::Holders);
  auto* other =
      taker && !norm.spec.is_multiplied() ? other_factor(a, *taker) : nullptr;
  if (!other || !is_like(*taker, a)) {
    return member;
  }
  if (auto number = as_number(before_broadcast(*other))) {
    bool early = norm.spec.rounding == Rounding::Early;
    if (early || member.dtype == mx::float32) {
      member.spec.multiplier = rounded_to(*number, member.dtype);
      member.output = *taker;
    }
  }
  return member;
}

// A norm in a graph.
struct Candidate {
  const array* norm;
  Sources sources;
};

class Group {
 public:
  explicit Group(Candidate first) : norms_{std::move(first)} {}

  bool takes(const Candidate& a) const {
    return norms_.size() < kMaxTogether &&
        std::ranges::all_of(
               norms_,
               [&](const Candidate& b) {
                 return share_source(a.sources, b.sources);
               }) &&
        are_alike(*norms_[0].norm, *a.norm);
  }

  bool has_several() const {
    return norms_.size() > 1;
  }

  void add(Candidate a) {
    norms_.push_back(std::move(a));
  }

  // Plans a launch of those whose rows one can compute.
  void plan(Graph& graph) const {
    std::vector<Member> members;
    for (const auto& a : norms_) {
      members.push_back(member_of(graph, *a.norm));
    }
    auto stream = norms_[0].norm->primitive().stream();
    auto backend = backend_of(stream);
    std::optional<NormsTogether> together;
    std::vector<NormSpec> specs;
    Dtypes dtypes;
    Rewrite rewrite;
    std::vector<const array*> joined;
    for (const auto& [norm, output, spec, dtype, inputs] : members) {
      const auto& x = inputs[0];
      NormedTensor tensor{
          spec,
          {spec.operands, inputs.data()},
          output,
          geometry_for(RowKernel::Forward, x.shape(-1), x.itemsize(), backend)};
      if (!together) {
        together.emplace(tensor);
      } else if (!together->add(tensor, backend)) {
        continue;
      }
      joined.push_back(norm);
      specs.push_back(spec);
      dtypes.push_back(dtype);
      rewrite.old.push_back(output);
      rewrite.inputs.insert(rewrite.inputs.end(), inputs.begin(), inputs.end());
    }
    auto made = specs.size() > 1
        ? made_of(
              shared(Norm(specs, dtypes)), std::move(rewrite.inputs), stream)
        : std::nullopt;
    if (!made) {
      return;
    }
    rewrite.node = std::move(made->node);
    rewrite.inputs = std::move(made->inputs);
    if (!graph.add(std::move(rewrite))) {
      return;
    }
    for (auto* each : joined) {
      count(Counted::SideBySide, each != joined[0] && is_counted(*each));
      recount(*each, Counted::WithOthers);
    }
  }

 private:
  std::vector<Candidate> norms_;
};

// Groups of norms that are joinable and not left out.
template <typename F>
std::vector<Group> groups_of(const Graph& graph, F is_left_out) {
  std::vector<Group> groups;
  for (const auto* a : graph.all(Kind::Norm)) {
    if (!is_joinable(*a) || !has_given_weight(*a) || is_left_out(*a)) {
      continue;
    }
    Candidate norm{a, sources_of(graph, a->inputs()[0])};
    auto first = groups.end() - std::min(groups.size(), kWindow);
    auto group = std::find_if(
        first, groups.end(), [&](const Group& of) { return of.takes(norm); });
    if (group != groups.end()) {
      group->add(std::move(norm));
    } else {
      groups.emplace_back(std::move(norm));
    }
  }
  return groups;
}

} // namespace

Sources sources_of(const Graph& graph, const array& x) {
  Sources ids;
  auto* a = &x;
  while (ids.size() < kMostSources) {
    ids.push_back(node_id(*a));
    const auto& inputs = graph.inputs_of(*a);
    if (!is_pending(*a) || op_of<Norm>(*a) || inputs.empty()) {
      break;
    }
    const array* only = nullptr;
    for (const auto& in : inputs) {
      bool another = !is_given(in);
      if (another && only) {
        return ids;
      }
      only = another ? &in : only;
    }
    a = only ? only : &inputs[0];
  }
  return ids;
}

bool share_source(const Sources& a, const Sources& b) {
  return std::ranges::find_first_of(a, b) != a.end();
}

bool may_stand_side_by_side(const Graph& graph) {
  auto groups = groups_of(graph, [](const array&) { return false; });
  return std::ranges::any_of(
      groups, [](const Group& of) { return of.has_several(); });
}

void plan_side_by_side(
    Graph& graph,
    const std::unordered_set<std::uintptr_t>& left_out) {
  auto groups = groups_of(graph, [&](const array& a) {
    return graph.rewrite_of(a) || !graph.is_used(a) ||
        left_out.contains(a.id());
  });
  for (const auto& group : groups) {
    group.plan(graph);
  }
}

} // namespace mlx_norms
