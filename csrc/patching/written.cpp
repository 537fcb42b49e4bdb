// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "csrc/common/checks.h"
#include "csrc/patching/reader.h"

namespace mlx_norms {

namespace {

constexpr int kMaxNodes = 12; // from the squares' sum to the root, or on

// --- Views and constants ----------------------------------------------------

// The array without the views that MLX puts in between.
const array& without_views(const array& a) {
  auto* of = &a;
  for (int i = 0; i < kMaxNodes; ++i) {
    auto name = name_of(*of);
    if (name != "Broadcast" && name != "AsType" && name != "Squeeze" &&
        name != "ExpandDims") {
      break;
    }
    of = &of->inputs()[0];
  }
  return *of;
}

std::optional<float> as_constant(const array& a) {
  auto* of = &without_views(a);
  for (int i = 0; i < kMaxNodes && is_reshape(name_of(*of)); ++i) { // by vmap
    of = &without_views(of->inputs()[0]);
  }
  return as_number(*of);
}

// --- The norm that a value is -----------------------------------------------

// Whether the number is sqrt(length), as the dtype in which it multiplies has
// it or its reciprocal, which makes the mean of a sum of squares.
bool is_root_of(int length, const Monomial& value) {
  auto root = std::sqrt(static_cast<float>(length));
  auto is_near = [&](float exact) {
    return std::abs(value.number - exact) <= kRootError * root;
  };
  return std::ranges::any_of(
      std::array{mx::float32, value.number_in.value_or(mx::float32)},
      [&](auto dtype) {
        return is_near(rounded_to(root, dtype)) ||
            is_near(1.0f / rounded_to(1.0f / root, dtype));
      });
}

// Takes the sum or mean of squares, if a kernel of ours has it.
bool take_statistic(NormSpec& spec, const Monomial& value, const array& x) {
  const auto& of = *value.of;
  const bool is_bare = value.number == 1.0f;
  if (value.centered != of.centered ||
      (of.centered && *of.centered != of.axes)) {
    return false; // a mean and a variance of other rows
  }
  spec.center = of.centered.has_value();
  spec.eps_bounds = of.eps_bounds;
  spec.eps = of.eps;
  if (of.mean) {
    return is_bare && !(of.centered && of.eps_bounds);
  }
  if (of.centered) {
    return false;
  }
  int length = length_over(x, of.axes);
  if (is_root_of(length, value)) {
    spec.eps /= of.eps_bounds ? std::sqrt(static_cast<float>(length)) : length;
    return true;
  }
  spec.l2 = true;
  return is_bare && of.axes == 1u << (x.ndim() - 1);
}

// How many groups of channels such a norm has: all but the samples, the first
// axis, and groups, if they are the last axis but one, is normalized; 0: as
// many as channels. Nullopt: it is no norm of groups.
std::optional<int> groups_of(const array& x, Axes axes) {
  int n = x.ndim();
  Axes all = (2u << (n - 1)) - 2u;
  auto group = n < 2 ? 0 : 1u << (n - 2);
  return n > 2 && axes == all                  ? std::optional(1)
      : n > 2 && axes == (all & ~(group << 1)) ? std::optional(0)
      : n > 3 && axes == (all & ~group)        ? std::optional(x.shape(n - 2))
                                               : std::nullopt;
}

// The norm of x, if the value is one of ours.
std::optional<WrittenNorm> norm_of(
    const Monomial& value,
    const array& output,
    const array& x,
    const Arrays& parameters,
    mx::Stream stream) {
  // A result that is rounded to 16 bits and cast back has no op.
  if (!value.is_normalized() || value.widened ||
      length_over(x, value.of->axes) == 1) {
    return std::nullopt;
  }
  NormCall call{{}, output.dtype(), stream};
  auto& spec = call.spec;
  if (!take_statistic(spec, value, x) || !(spec.eps >= 0.0f) ||
      !std::isfinite(spec.eps) || (spec.l2 && value.weight) ||
      (!spec.center && value.bias)) {
    return std::nullopt;
  }
  call.set(kX, x);
  if (std::has_single_bit(value.of->axes)) {
    spec.axis = std::countr_zero(value.of->axes) - static_cast<int>(x.ndim());
  } else {
    auto groups = groups_of(x, value.of->axes);
    if (!groups || !spec.center) {
      return std::nullopt;
    }
    spec.grouped = true;
    spec.groups = *groups;
    spec.rounding = Rounding::Late;
  }
  for (const auto& [operand, vector] :
       {std::pair(kWeight, value.weight), {kBias, value.bias}}) {
    if (!vector) {
      continue;
    }
    const auto& parameter = parameters[vector->parameter];
    bool fits = vector->axis_from_end == -spec.axis &&
        static_cast<int>(parameter.size()) == x.shape(spec.axis) &&
        takes_dtype(parameter.dtype());
    if (!fits) {
      return std::nullopt;
    }
    call.set(operand, as_vector(parameter, stream));
  }
  if (spec.grouped && value.weight && value.weight->offset != 0.0f) {
    return std::nullopt; // no op has it: the weight is taken after the norm
  }
  if (value.weight && !spec.grouped) {
    spec.weight_offset = value.weight->offset;
    spec.rounding = value.rounded || call.dtype == mx::float32 ? Rounding::Early
                                                               : Rounding::Late;
  }
  auto kind = spec.grouped ? Counted::GroupNorm
      : spec.l2            ? Counted::L2Norm
      : spec.center        ? Counted::LayerNorm
                           : Counted::RmsNorm;
  return WrittenNorm{output, std::move(call), kind};
}

// --- Where to look ----------------------------------------------------------

// The sum that a statistic is of; null: it is none.
const array* sum_of(const array& statistic) {
  auto* a = &statistic;
  for (int i = 0; i < kMaxNodes; ++i) {
    auto name = name_of(*a);
    if (name == "Sum") {
      return a;
    }
    bool leads_by_first = name == "Sqrt" || name == "Divide" ||
        name == "Subtract" || &without_views(*a) != a;
    if (leads_by_first) {
      a = &a->inputs()[0];
    } else if (name == "Multiply" || name == "Add" || name == "Maximum") {
      a = &a->inputs()[as_constant(a->inputs()[0]) ? 1 : 0];
    } else {
      return nullptr;
    }
  }
  return nullptr;
}

bool is_mean(const array& a) {
  const auto& of = without_views(a);
  auto name = name_of(of);
  return (name == "Multiply" || name == "Divide") &&
      std::ranges::any_of(of.inputs(), [](const array& in) {
           return name_of(without_views(in)) == "Sum";
         });
}

// What the squares under a root are of.
const array* input_of(const array& root) {
  auto* sum = sum_of(root.inputs()[0]);
  if (!sum) {
    return nullptr;
  }
  auto narrow = [&](const array& a) -> const array& {
    return before_cast(a, root.primitive().stream());
  };
  const auto& squares = narrow(sum->inputs()[0]);
  auto name = name_of(squares);
  bool is_square = name == "Square" || name == "Power" ||
      (name == "Multiply" &&
       squares.inputs()[0].id() == squares.inputs()[1].id());
  if (!is_square) {
    return nullptr;
  }
  auto* x = &narrow(squares.inputs()[0]);
  if (name_of(*x) == "Abs") {
    x = &narrow(x->inputs()[0]);
  }
  if (name_of(*x) == "Subtract" && is_mean(x->inputs()[1])) {
    x = &narrow(x->inputs()[0]);
  }
  return x;
}

// Whether a value is the norm's alone, so that others that take it would have
// it computed again.
bool is_part(const Monomial* value) {
  return value && value->known &&
      (value->halves != 0 || value->x == 2 || value->magnitude ||
       (value->x == 1 && value->centered));
}

bool is_alone(const array& output, const Reader& reader, const Graph& graph) {
  std::vector<const array*> parts{&output};
  auto contains = [&](const array& a) {
    return std::ranges::any_of(
        parts, [&](const array* part) { return part->id() == a.id(); });
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const auto& in : parts[i]->inputs()) { // which stay where they are
      if (is_part(reader.find(in)) && !contains(in)) {
        parts.push_back(&in);
      }
    }
  }
  return std::all_of(parts.begin() + 1, parts.end(), [&](const array* part) {
    return !graph.is_root(*part) && graph.all_takers(*part, contains);
  });
}

// Whether the op of the norm has its result; what has an axis of groups is
// taken with the reshape that joins them with their channels.
bool may_end_at(WrittenNorm& norm, const Graph& graph) {
  auto& call = norm.call;
  const auto x = call.x();
  if (!call.spec.grouped || call.spec.groups < 2) {
    return true;
  }
  auto* join = graph.only_taker(norm.output);
  bool joins = join && joins_last_axes(*join, x) && join->ndim() > 1 &&
      join->shape(0) == x.shape(0) &&
      join->primitive().stream() == call.stream &&
      call.spec.operands.count() == 1;
  if (joins) {
    const auto& before = before_reshape(x);
    bool is_joined = before.shape() == join->shape();
    call.set(
        kX, is_joined ? before : mx::reshape(x, join->shape(), call.stream));
    norm.output = *join;
  }
  return joins;
}

// That of an array under the root.
std::optional<WrittenNorm>
norm_of(const array& x, const array& root, const Graph& graph) {
  if (x.ndim() == 0 || x.ndim() > kMaxAxes || x.size() == 0 ||
      !takes_dtype(x.dtype())) {
    return std::nullopt;
  }
  auto stream = root.primitive().stream();
  Reader reader(x, stream, graph);
  std::optional<WrittenNorm> found;
  auto* a = &root;
  for (int i = 0; a && i < kMaxNodes && is_part(&reader.value_of(*a)); ++i) {
    if (a->shape() == x.shape() && takes_dtype(a->dtype())) {
      auto written =
          norm_of(reader.value_of(*a), *a, x, reader.parameters(), stream);
      if (written && may_end_at(*written, graph)) {
        found.emplace(std::move(*written));
      }
    }
    a = graph.only_taker(*a);
  }
  return found && is_alone(found->output, reader, graph) ? found : std::nullopt;
}

} // namespace

bool may_be_root(const array& root) {
  if (name_of(root) != "Power") {
    return true;
  }
  auto exponent = as_constant(root.inputs()[1]);
  return exponent == 0.5f || exponent == -0.5f;
}

std::optional<WrittenNorm> written_norm(const array& root, const Graph& graph) {
  auto* x = may_be_root(root) ? input_of(root) : nullptr;
  if (!x) {
    return std::nullopt;
  }
  auto found = norm_of(*x, root, graph);
  // The squares of x times a number may be those of its mean.
  return !found && name_of(*x) == "Multiply" && as_constant(x->inputs()[1])
      ? norm_of(
            before_cast(x->inputs()[0], root.primitive().stream()), root, graph)
      : found;
}

} // namespace mlx_norms
