// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <ranges>
#include <stdexcept>

#include "csrc/patching/plans.h"
#include "csrc/patching/rules.h"
#include "csrc/rope/ops.h"
#include "mlx/fast_primitives.h"

namespace mlx_norms {

namespace {

// Whether `a` has heads and tokens exchanged: transpose(0, 2, 1, 3).
bool swaps_heads(const array& a) {
  static const std::vector<int> axes{0, 2, 1, 3};
  return a.ndim() == 4 && is_pending(a, "Transpose") &&
      state_of<mx::Transpose>(a) == axes;
}

// What a rope of this package or of MLX rotates, [B, H, L, D]; null: it is none
// of four axes, or the gradient of one.
const array* rotated_by(const array& rope) {
  if (!is_pending(rope) || rope.ndim() != 4 || !rope.siblings().empty()) {
    return nullptr;
  }
  const auto& x = rope.inputs()[0];
  if (auto* op = op_of<NormRope>(rope)) {
    bool alone = !op->normalized && op->rotated == 1 && !op->has_v &&
        op->head_major && !op->late();
    return alone && swaps_heads(x) ? &x.inputs()[0] : nullptr;
  }
  bool forward =
      is_pending(rope, "RoPE") && std::get<5>(state_of<mx::fast::RoPE>(rope));
  return forward ? &x : nullptr;
}

// A pending norm whose result is [B, H, L, D], by a transpose after it or
// before.
struct NormOfHeads {
  array normalized;
  array transpose;
  NormCall call;
  bool offset; // its weight was 1 + w
  array x;     // [B, L, H, D]
};

std::optional<NormOfHeads> as_norm_of_heads(
    const array& a,
    const CallOf& call_of) {
  if (a.ndim() != 4 || !is_pending(a) || a.inputs().empty()) {
    return std::nullopt;
  }
  const auto& in = a.inputs()[0];
  bool is_before = swaps_heads(a);
  auto call = call_of(is_before ? in : a);
  if (!call) {
    return std::nullopt;
  }
  bool offset = is_call(is_before ? in : a) && take_operands(*call).offset;
  const auto x = call->x();
  if (is_before) {
    return NormOfHeads{in, a, std::move(*call), offset, x};
  }
  return swaps_heads(x)
      ? std::optional(
            NormOfHeads{a, x, std::move(*call), offset, x.inputs()[0]})
      : std::nullopt;
}

// Whether norm_rope computes the norm, too.
bool suits_rope(const NormCall& norm, const array& x) {
  const auto& spec = norm.spec;
  const auto& weight = norm.in[kWeight];
  return norm.is_of_rows() && spec.is_basic() && !spec.center && !spec.clamp &&
      !spec.identity && spec.n_inputs() == 1 + weight.has_value() &&
      (!weight || weight->ndim() == 1) && norm.dtype == x.dtype() &&
      x.size() > 0;
}

// The rope's own node with the norm; nullopt: there is none.
std::optional<Call<NormRope>>
with_norm(const array& rope, const array& x, const NormCall& norm) {
  const auto* weight = norm.in[kWeight] ? &*norm.in[kWeight] : nullptr;
  if (auto* of_ours = op_of<NormRope>(rope)) {
    auto op = *of_ours;
    op.normalized = true;
    op.norm = norm.spec;
    Arrays inputs{x};
    if (weight) {
      inputs.push_back(*weight);
    }
    const auto& in = rope.inputs();
    inputs.insert(inputs.end(), in.begin() + of_ours->offset_at(), in.end());
    return Call<NormRope>{std::move(op), std::move(inputs)};
  }
  const auto& in = rope.inputs();
  auto [fallback, dims, traditional, base, scale, forward] =
      state_of<mx::fast::RoPE>(rope);
  RopeArguments arguments{
      .q = &x,
      .q_weight = weight,
      .eps = norm.spec.eps,
      .dims = dims,
      .traditional = traditional,
      .base = in.size() > 2 ? std::nullopt : std::optional(base),
      .scale = scale,
      .offset = in[1],
      .freqs = in.size() > 2 ? &in[2] : nullptr,
      .weight_offset = norm.spec.weight_offset,
      .rounding = norm.spec.rounding == Rounding::Late ? "late" : "early",
      .stream = norm.stream};
  try {
    return norm_rope_call(arguments);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

struct RopeOfNorm {
  array output;
  array normalized;
  Call<NormRope> call;
  bool offset; // as of NormOfHeads
  mx::Stream stream;
};

// What was given, before it was converted or made contiguous.
const array& before_conversion(const array& a) {
  auto* of = &a;
  while (is_pending(*of, "AsType") || is_pending(*of, "Contiguous")) {
    of = &of->inputs()[0];
  }
  return *of;
}

bool is_same(const array& a, const array& b) {
  return before_conversion(a).id() == before_conversion(b).id();
}

bool is_same_number(const array& a, const array& b) {
  auto is_number = [](const array& n) {
    return n.dtype() == mx::int32 && n.size() == 1 && !n.has_primitive() &&
        !n.is_tracer() && n.status() == array::Status::available;
  };
  return is_number(a) && is_number(b) &&
      *a.data<int32_t>() == *b.data<int32_t>();
}

// Whether one launch may rotate both, but for what they are computed from.
bool are_alike(const RopeOfNorm& q, const RopeOfNorm& k) {
  const auto& op = q.call.op;
  if (op != k.call.op || q.stream != k.stream) {
    return false;
  }
  const auto &a = q.call.inputs, &b = k.call.inputs;
  const auto &x = a[0], &y = b[0];
  int at = op.offset_at();
  return x.shape(0) == y.shape(0) && x.shape(1) == y.shape(1) &&
      x.shape(3) == y.shape(3) &&
      (is_same(a[at], b[at]) || is_same_number(a[at], b[at])) &&
      (!op.has_freqs || is_same(a[at + 1], b[at + 1]));
}

// Whether neither is computed from the other.
bool are_apart(const RopeOfNorm& q, const RopeOfNorm& k, const Graph& graph) {
  // As in a layer of a model: then neither x needs the other's rope.
  bool shared = share_source(
      sources_of(graph, q.call.inputs[0]), sources_of(graph, k.call.inputs[0]));
  auto is_free = [&](const RopeOfNorm& a, const RopeOfNorm& of) {
    const auto& in = a.call.inputs;
    return std::all_of(in.begin() + shared, in.end(), [&](const array& input) {
      return graph.is_independent(input, of.output);
    });
  };
  return is_free(q, k) && is_free(k, q);
}

// Both in one launch.
Call<NormRope> joined(const RopeOfNorm& q, const RopeOfNorm& k) {
  auto op = q.call.op;
  op.rotated = 2;
  op.dtypes.push_back(op.dtypes[0]);
  const auto &a = q.call.inputs, &b = k.call.inputs;
  int angles = q.call.op.offset_at();
  Arrays inputs(a.begin(), a.begin() + angles);
  inputs.insert(inputs.end(), b.begin(), b.begin() + angles);
  inputs.insert(inputs.end(), a.begin() + angles, a.end());
  return {std::move(op), std::move(inputs)};
}

class RopePass {
 public:
  RopePass(Graph& graph, const CallOf& call_of)
      : graph_(graph),
        call_of_(call_of) {}

  Arrays run() {
    found_.reserve(graph_.all(Kind::Rope).size());
    for (const auto* a : graph_.all(Kind::Rope) | std::views::reverse) {
      if (auto rope = read(*a)) {
        found_.push_back(std::move(*rope));
      }
    }
    for (size_t i = 0; i < found_.size(); ++i) {
      if (!is_taken(found_[i]) && !join(i)) {
        plan({&found_[i]}, found_[i].call);
      }
    }
    return taken_;
  }

 private:
  // The rope with its norm, if nothing else takes that or its transpose.
  std::optional<RopeOfNorm> read(const array& a) const {
    auto* rotated = rotated_by(a);
    auto heads = rotated ? as_norm_of_heads(*rotated, call_of_) : std::nullopt;
    if (!heads) {
      return std::nullopt;
    }
    const auto& [normalized, transpose, norm, offset, x] = *heads;
    auto stream = a.primitive().stream();
    bool is_on_one =
        norm.stream == stream && transpose.primitive().stream() == stream;
    auto& second = transpose.id() == rotated->id() ? normalized : transpose;
    // On a GPU MLX rotates by other roundings than we do.
    auto ask = op_of<NormRope>(a) ? Ask::Holders : Ask::Takers;
    bool is_alone = graph_.is_part(*rotated, ask) &&
        graph_.is_part(second, ask) &&
        (a.inputs()[0].id() == rotated->id() ||
         graph_.is_part(a.inputs()[0], ask));
    if (!is_on_one || !is_alone || !suits_rope(norm, x)) {
      return std::nullopt;
    }
    auto call = with_norm(a, x, norm);
    return call
        ? std::optional(
              RopeOfNorm{a, normalized, std::move(*call), offset, stream})
        : std::nullopt;
  }

  bool is_taken(const RopeOfNorm& rope) const {
    return graph_.rewrite_of(rope.output) != nullptr;
  }

  // With the next of found_ that is alike.
  bool join(size_t i) {
    constexpr size_t kWindow = 4;
    const auto& q = found_[i];
    auto end = std::min(found_.size(), i + 1 + kWindow);
    for (size_t j = i + 1; j < end; ++j) {
      const auto& k = found_[j];
      if (is_taken(k) || !are_alike(q, k) || !are_apart(q, k, graph_)) {
        continue;
      }
      if (plan({&q, &k}, joined(q, k))) {
        return true;
      }
    }
    return false;
  }

  bool plan(std::vector<const RopeOfNorm*> ropes, Call<NormRope> call) {
    auto made = made_of(
        shared(std::move(call.op)), std::move(call.inputs), ropes[0]->stream);
    if (!made) {
      return false;
    }
    Rewrite rewrite{{}, std::move(made->node), std::move(made->inputs)};
    for (auto* rope : ropes) {
      rewrite.old.push_back(rope->output);
    }
    if (!graph_.add(std::move(rewrite))) {
      return false;
    }
    for (auto* rope : ropes) {
      if (is_counted(rope->normalized)) {
        count(Counted::Ropes);
        count(Counted::RopePairs, rope != ropes[0]);
        count(Counted::Offsets, rope->offset);
        recount(rope->normalized, Counted::WithOthers);
      }
      taken_.push_back(rope->normalized);
    }
    return true;
  }

  Graph& graph_;
  const CallOf& call_of_;
  std::vector<RopeOfNorm> found_;
  Arrays taken_;
};

} // namespace

bool may_be_rope_of_norm(const array& rope) {
  auto is_norm = [](const array& a) {
    return op_of<Norm>(a) || is_mlx_norm(name_of(a));
  };
  auto* rotated = rotated_by(rope);
  return rotated && is_pending(*rotated) && !rotated->inputs().empty() &&
      (is_norm(*rotated) || is_norm(rotated->inputs()[0]));
}

Arrays plan_ropes(Graph& graph, const CallOf& call_of) {
  return RopePass(graph, call_of).run();
}

} // namespace mlx_norms
