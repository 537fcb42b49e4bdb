// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/side_by_side.h"

#include <algorithm>
#include <optional>
#include <typeinfo>

#include "csrc/common/checks.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/together.h"
#include "csrc/patching/followers.h"
#include "csrc/patching/outcome.h"

namespace mlx_norms {

namespace {

// Norms of one layer follow each other where a graph is walked.
constexpr size_t kWindow = 3;
constexpr size_t kFarAbove = 6;

const Norm* as_norm(const array& a) {
  return is_pending(a) && typeid(a.primitive()) == typeid(Node<Norm>)
      ? &static_cast<Node<Norm>&>(a.primitive()).op()
      : nullptr;
}

// An RMS or l2 norm alone, as others may be joined to.
const Norm* as_joinable(const array& a) {
  auto* norm = as_norm(a);
  if (!norm || !norm->others.empty()) {
    return nullptr;
  }
  const auto& spec = norm->spec;
  bool bare = !spec.center && !spec.is_modulated() && !spec.is_factored() &&
      !spec.is_gated() && !spec.clamp && !spec.identity &&
      spec.operands.without({kX, kWeight}).count() == 0;
  return bare ? norm : nullptr;
}

// Whether they have the same options but for a weight and a multiplier.
bool are_alike(const array& a, const array& b) {
  auto options = [](const array& of) {
    auto spec = as_norm(of)->spec;
    spec.operands.set(kWeight, false);
    spec.multiplier = 1.0f;
    return spec;
  };
  return a.primitive().stream() == b.primitive().stream() &&
      options(a) == options(b);
}

// Whether `a` has a value, or is computed from one alone without a norm, as by
// a cast.
bool is_given(const array& a, int walk = kWalk) {
  return !is_pending(a) ||
      (walk > 0 && a.inputs().size() == 1 && !as_norm(a) &&
       is_given(a.inputs()[0], walk - 1));
}

// The nodes from which alone, besides what is given, a norm's x is computed one
// after another, with no other norm between; the nearest first.
std::vector<std::uintptr_t> sources_of(const array& norm) {
  std::vector<std::uintptr_t> ids;
  auto* a = &norm.inputs()[0];
  while (ids.size() < kFarAbove) {
    ids.push_back(node_id(*a));
    if (!is_pending(*a) || as_norm(*a)) {
      break;
    }
    const array* only = nullptr;
    for (const auto& in : a->inputs()) {
      bool another = !is_given(in);
      if (another && only) {
        return ids;
      }
      only = another ? &in : only;
    }
    if (!only && a->inputs().empty()) {
      break;
    }
    a = only ? only : &a->inputs()[0];
  }
  return ids;
}

// Norms that are computed from one source do not need each other.
bool share_source(const array& a, const array& b) {
  auto of_a = sources_of(a), of_b = sources_of(b);
  return std::ranges::any_of(of_a, [&](std::uintptr_t id) {
    return std::ranges::find(of_b, id) != of_b.end();
  });
}

bool has_given_weight(const array& norm) {
  const auto& in = norm.inputs();
  return std::all_of(
      in.begin() + 1, in.end(), [](const array& a) { return is_given(a); });
}

// A norm, with the number that multiplies its result.
struct Member {
  array output;
  NormSpec spec;
  mx::Dtype dtype;
  Arrays inputs;
};

Member member_of(const RewrittenGraph& graph, const array& a) {
  const auto& norm = *as_norm(a);
  Member member{a, norm.spec, norm.dtypes[0], a.inputs()};
  auto* taker = graph.sole_taker(a);
  auto* other = taker && !norm.spec.is_multiplied()
      ? beside(a, *taker, "Multiply")
      : nullptr;
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

class Group {
 public:
  explicit Group(const array& first) : norms_{first} {}

  bool takes(const array& a) const {
    return norms_.size() < kMaxTogether && are_alike(norms_[0], a) &&
        has_given_weight(a) &&
        std::ranges::all_of(
               norms_, [&](const array& b) { return share_source(a, b); });
  }

  void add(const array& a) {
    norms_.push_back(a);
  }

  // Plans a launch of those whose rows one can compute.
  void plan(RewrittenGraph& graph) const {
    std::vector<Member> members;
    for (const auto& a : norms_) {
      members.push_back(member_of(graph, a));
    }
    auto stream = norms_[0].primitive().stream();
    auto backend = backend_of(stream);
    std::optional<NormsTogether> together;
    std::vector<NormSpec> specs;
    Dtypes dtypes;
    Rewrite rewrite;
    for (const auto& [output, spec, dtype, inputs] : members) {
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
      specs.push_back(spec);
      dtypes.push_back(dtype);
      rewrite.old.push_back(output);
      rewrite.inputs.insert(rewrite.inputs.end(), inputs.begin(), inputs.end());
    }
    Norm norm(specs, dtypes);
    if (specs.size() < 2 || !has_kernel(norm, rewrite.inputs, stream)) {
      return;
    }
    for (size_t i = 1; i < specs.size(); ++i) {
      count(Taken::SideBySide);
    }
    rewrite.node = std::make_shared<Node<Norm>>(stream, norm);
    graph.add(std::move(rewrite));
  }

 private:
  std::vector<array> norms_;
};

} // namespace

bool may_stand_side_by_side(const PendingGraph& graph) {
  const auto& norms = graph.norms();
  for (size_t i = 0; i < norms.size(); ++i) {
    if (!as_joinable(*norms[i])) {
      continue;
    }
    for (size_t j = i + 1; j < std::min(i + 1 + kWindow, norms.size()); ++j) {
      if (as_joinable(*norms[j]) && are_alike(*norms[i], *norms[j])) {
        return true;
      }
    }
  }
  return false;
}

void join_side_by_side(RewrittenGraph& graph) {
  std::vector<Group> groups;
  std::vector<size_t> latest; // groups of the last norms
  for (const auto* a : graph.before().norms()) {
    if (!as_joinable(*a) || graph.rewrite_of(*a) || a->size() == 0 ||
        backend_of(a->primitive().stream()) == Backend::Cpu) {
      continue;
    }
    auto first =
        latest.size() > kWindow ? latest.end() - kWindow : latest.begin();
    auto joined = std::find_if(
        first, latest.end(), [&](size_t i) { return groups[i].takes(*a); });
    if (joined != latest.end()) {
      groups[*joined].add(*a);
      latest.push_back(*joined);
    } else if (has_given_weight(*a)) {
      latest.push_back(groups.size());
      groups.emplace_back(*a);
    }
  }
  for (const auto& group : groups) {
    group.plan(graph);
  }
}

} // namespace mlx_norms
