// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/inline_norm.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "csrc/common/checks.h"
#include "csrc/patching/written_reader.h"

namespace mlx_norms {

namespace {

// Nodes between the squares' sum and the root, or the root and the result.
constexpr int kMaxNodes = 12;

std::string_view name_of(const array& a) {
  return is_pending(a) ? a.primitive().name() : "";
}

bool is_view(std::string_view name) {
  return name == "Broadcast" || name == "AsType" || name == "Squeeze" ||
      name == "ExpandDims";
}

// The array without the views that MLX puts in between.
const array& without_views(const array& a) {
  auto* of = &a;
  for (int i = 0; i < kMaxNodes && is_view(name_of(*of)); ++i) {
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

// The sum that a statistic is of; null: it is none.
const array* sum_of(const array& statistic) {
  auto* a = &statistic;
  for (int i = 0; i < kMaxNodes; ++i) {
    auto name = name_of(*a);
    if (name == "Sum") {
      return a;
    }
    if (is_view(name) || name == "Sqrt" || name == "Divide" ||
        name == "Subtract") {
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

const array& narrow(const array& a) {
  bool is_wide = a.dtype() == mx::float32 && name_of(a) == "AsType";
  return is_wide && takes_dtype(a.inputs()[0].dtype()) ? a.inputs()[0] : a;
}

// What the squares under a root are of.
const array* input_of(const array& power) {
  auto* sum = sum_of(power.inputs()[0]);
  if (!sum) {
    return nullptr;
  }
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
bool is_part(const Value* value) {
  if (!value || std::holds_alternative<Refused>(*value)) {
    return false;
  }
  auto* product = std::get_if<Product>(value);
  return !product || product->over || (product->has_x && product->centered);
}

bool is_alone(
    const array& output,
    const WrittenReader& reader,
    const PendingGraph& graph) {
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
    return !graph.is_kept(*part) && graph.all_takers(*part, contains);
  });
}

// That of an array under the root.
std::optional<InlineNorm>
norm_of(const array& x, const array& power, const PendingGraph& graph) {
  if (x.ndim() == 0 || x.size() == 0 || !takes_dtype(x.dtype())) {
    return std::nullopt;
  }
  auto stream = power.primitive().stream();
  WrittenReader reader(x, stream, graph);
  std::optional<InlineNorm> found;
  auto* a = &power;
  for (int i = 0; i < kMaxNodes && is_part(&reader.value_of(*a)); ++i) {
    const auto& value = reader.value_of(*a);
    if (a->shape() == x.shape() && takes_dtype(a->dtype())) {
      auto written = norm_of(value, *a, x, reader.parameters());
      if (written) {
        found = {*a, *written, x, reader.parameters(), stream};
      }
    }
    a = graph.only_taker(*a);
    if (!a) {
      break;
    }
  }
  return found && is_alone(found->output, reader, graph) ? found : std::nullopt;
}

} // namespace

bool may_be_root(const array& power) {
  if (name_of(power) != "Power") {
    return true;
  }
  auto exponent = as_constant(power.inputs()[1]);
  return exponent == 0.5f || exponent == -0.5f;
}

std::optional<InlineNorm> inline_norm(
    const array& power,
    const PendingGraph& graph) {
  auto* x = may_be_root(power) ? input_of(power) : nullptr;
  if (!x) {
    return std::nullopt;
  }
  auto found = norm_of(*x, power, graph);
  // The squares of x times a number may be those of its mean.
  return !found && name_of(*x) == "Multiply" && as_constant(x->inputs()[1])
      ? norm_of(narrow(x->inputs()[0]), power, graph)
      : found;
}

} // namespace mlx_norms
