// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/join_ropes.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "csrc/common/checks.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/sources.h"
#include "csrc/rope/norm_rope.h"
#include "mlx/fast_primitives.h"

namespace mlx_norms {

namespace {

constexpr int kFewTokens = 16; // where a launch takes longer than a rotation
// Between a layer's keys and queries the graph has those of other layers.
constexpr size_t kWindow = 4;

struct Rope {
  const array* y;
  NormRope op;
  Arrays inputs; // heads, [B, L, H, D]; the offset; the frequencies
  std::vector<std::uintptr_t> sources;
};

// That of [B, H, L, D] which has heads and tokens exchanged.
std::optional<Rope> as_rope(const array& a) {
  const auto& in = a.inputs();
  if (!a.siblings().empty() || !swaps_heads(in[0]) || !takes_dtype(a.dtype()) ||
      in[1].dtype() != mx::int32 || in[1].size() != 1) {
    return std::nullopt;
  }
  const auto& heads = in[0].inputs()[0];
  auto [_, dims, traditional, base, scale, forward] =
      state_of<mx::fast::RoPE>(a);
  if (!forward || heads.shape(0) * heads.shape(1) > kFewTokens) {
    return std::nullopt;
  }
  NormRope op;
  op.normalized = false;
  op.dims = dims;
  op.traditional = traditional;
  op.base = base;
  op.scale = scale;
  op.has_freqs = in.size() > 2;
  op.dtypes = {a.dtype()};
  Rope rope{&a, op, {heads}, sources_of(a)};
  rope.inputs.insert(rope.inputs.end(), in.begin() + 1, in.end());
  return rope;
}

// Whether both are one array or one number.
bool is_same(const array& a, const array& b) {
  auto number = as_integer(a);
  return a.id() == b.id() || (number && number == as_integer(b));
}

bool may_join(const Rope& a, const Rope& b) {
  const auto& q = a.inputs[0];
  const auto& k = b.inputs[0];
  return a.op == b.op && q.shape(0) == k.shape(0) && q.shape(1) == k.shape(1) &&
      q.shape(3) == k.shape(3) &&
      a.y->primitive().stream() == b.y->primitive().stream() &&
      is_same(a.inputs[1], b.inputs[1]) &&
      (!a.op.has_freqs || a.inputs[2].id() == b.inputs[2].id()) &&
      share_source(a.sources, b.sources);
}

} // namespace

void join_ropes(RewrittenGraph& graph) {
  std::vector<Rope> alone;
  for (const auto* a : graph.before().ropes()) {
    auto rope = as_rope(*a);
    if (!rope) {
      continue;
    }
    auto first = alone.end() - std::min(alone.size(), kWindow);
    auto other = std::find_if(first, alone.end(), [&](const Rope& before) {
      return may_join(before, *rope);
    });
    if (other == alone.end()) {
      alone.push_back(std::move(*rope));
      continue;
    }
    auto stream = a->primitive().stream();
    auto op = rope->op;
    op.rotated = 2;
    op.dtypes.push_back(op.dtypes[0]);
    Arrays inputs{other->inputs[0]};
    inputs.insert(inputs.end(), rope->inputs.begin(), rope->inputs.end());
    if (has_kernel(op, inputs, stream)) {
      count(Taken::RopeBeside);
      graph.add(
          {{*other->y, *a},
           std::make_shared<Node<NormRope>>(stream, std::move(op)),
           std::move(inputs)});
    }
    alone.erase(other);
  }
}

} // namespace mlx_norms
