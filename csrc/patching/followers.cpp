// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/followers.h"

#include <algorithm>
#include <map>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/common/activations.h"
#include "csrc/common/checks.h"
#include "csrc/patching/prologue.h"
#include "csrc/patching/written_op.h"
#include "mlx/mlx.h"

namespace mlx_norms {

namespace {

bool is_constant(const array& a, float number) {
  return as_number(before_broadcast(a)) == rounded_to(number, a.dtype());
}

// The array beside a constant; null: there is none.
const array* beside_constant(const array& a, const char* name, float number) {
  if (!is_pending(a, name)) {
    return nullptr;
  }
  const auto& in = a.inputs();
  bool commutes = !is_pending(a, "Divide");
  return is_constant(in[1], number)            ? &in[0]
      : commutes && is_constant(in[0], number) ? &in[1]
                                               : nullptr;
}

// x * (1 + erf(x / sqrt(2))) / 2, as mlx.nn writes it.
const array* as_gelu(const array& a) {
  auto* product = beside_constant(a, "Divide", 2.0f);
  if (!product || !is_pending(*product, "Multiply")) {
    return nullptr;
  }
  for (int i : {0, 1}) {
    const auto& x = product->inputs()[i];
    auto* erf = beside_constant(product->inputs()[1 - i], "Add", 1.0f);
    if (erf && is_pending(*erf, "Erf")) {
      auto* of = beside_constant(
          erf->inputs()[0], "Divide", std::numbers::sqrt2_v<float>);
      if (of && of->id() == x.id()) {
        return &x;
      }
    }
  }
  return nullptr;
}

// MLX's names for mlx.nn's activations, compiled, of this dtype: they tell the
// structure and the constants. None within a trace, where nothing is compiled.
using Names = std::vector<std::pair<std::string, Activation>>;

Names compiled_names(mx::Dtype dtype) {
  Names names;
  auto like = mx::zeros({1, 1}, dtype);
  for (auto activation :
       {Activation::Silu, Activation::Gelu, Activation::Relu2}) {
    auto name = compiled_name(
        [activation](const Arrays& in) {
          auto stream = mx::default_stream(mx::default_device());
          return Arrays{activated(activation, in[0], stream)};
        },
        {like},
        /* shapeless= */ true);
    if (!name.empty()) {
      names.emplace_back(std::move(name), activation);
    }
  }
  return names;
}

// What a node of mx.compile computes of its first input; the others are
// constants.
std::optional<Activated> as_compiled_activation(const array& a) {
  auto* compiled = as_compiled(a);
  if (!compiled || !takes_dtype(a.dtype()) || !is_like(a.inputs()[0], a)) {
    return std::nullopt;
  }
  thread_local std::map<mx::Dtype::Val, Names> by_dtype;
  auto& names = by_dtype[a.dtype().val()];
  if (names.empty()) {
    names = compiled_names(a.dtype());
  }
  auto name = compiled->lib_name();
  for (const auto& [of, activation] : names) {
    if (of == name) {
      return Activated{activation, a.inputs()[0], 1};
    }
  }
  return std::nullopt;
}

// MLX's name for mx.compile(lambda a, b: silu(a) * b, shapeless=True), which
// has its structure and dtypes.
const std::string& gated_name(mx::Dtype dtype) {
  thread_local std::map<mx::Dtype::Val, std::string> names;
  auto& name = names[dtype.val()];
  if (name.empty()) {
    auto like = mx::zeros({1, 1}, dtype);
    name = compiled_name(
        [](const Arrays& in) -> Arrays {
          auto silu = mx::multiply(in[0], mx::sigmoid(in[0]));
          return {mx::multiply(silu, in[1])};
        },
        {like, like + like},
        /* shapeless= */ true);
  }
  return name;
}

} // namespace

std::optional<Gated> as_gated(const array& a) {
  auto* compiled = as_compiled(a);
  if (!compiled || a.inputs().size() != 2 || !takes_dtype(a.dtype()) ||
      compiled->lib_name() != gated_name(a.dtype())) {
    return std::nullopt;
  }
  return Gated{a.inputs()[0], a.inputs()[1]};
}

const array& before_broadcast(const array& a) {
  return is_pending(a, "Broadcast") ? a.inputs()[0] : a;
}

const array* beside(const array& operand, const array& a, const char* name) {
  if (!is_pending(a, name) || !a.siblings().empty()) {
    return nullptr;
  }
  const auto& in = a.inputs();
  bool first = in[0].id() == operand.id();
  bool second = in[1].id() == operand.id();
  return first == second ? nullptr : &in[first ? 1 : 0];
}

std::optional<Activated> as_activation(const array& a) {
  if (is_pending(a, "Sigmoid")) {
    return Activated{Activation::Sigmoid, a.inputs()[0], 1};
  }
  if (is_pending(a, "Square")) {
    auto* of = beside_constant(a.inputs()[0], "Maximum", 0.0f);
    return of ? std::optional(Activated{Activation::Relu2, *of, 1})
              : std::nullopt;
  }
  if (is_pending(a, "Multiply")) {
    for (int i : {0, 1}) {
      const auto& x = a.inputs()[i];
      const auto& sigmoid = a.inputs()[1 - i];
      if (is_pending(sigmoid, "Sigmoid") &&
          sigmoid.inputs()[0].id() == x.id()) {
        return Activated{Activation::Silu, x, 2};
      }
    }
  }
  if (auto compiled = as_compiled_activation(a)) {
    return compiled;
  }
  auto* of = as_gelu(a);
  return of ? std::optional(Activated{Activation::Gelu, *of, 2}) : std::nullopt;
}

OptionalArray as_scale(const array& factor, int most_views) {
  if (most_views == 0) {
    return std::nullopt;
  }
  if (is_pending(factor, "AsType")) {
    const auto& narrow = before_cast(factor, factor.primitive().stream());
    return narrow.id() == factor.id() ? std::nullopt
                                      : as_scale(narrow, most_views - 1);
  }
  if (const auto& moved = before_reshape(factor); moved.id() != factor.id()) {
    auto before = as_scale(moved, most_views - 1);
    if (!before) {
      return std::nullopt;
    }
    return made_by(
        factor.primitive_ptr(), factor.shape(), before->dtype(), {*before});
  }
  auto* scale = beside_constant(factor, "Add", 1.0f);
  return scale && scale->dtype() == factor.dtype() ? OptionalArray(*scale)
                                                   : std::nullopt;
}

OptionalArray as_vector_of(int length, const array& a, mx::Stream stream) {
  if (static_cast<int>(a.size()) != length || a.ndim() == 0 ||
      a.shape(-1) != length) {
    return std::nullopt;
  }
  return as_vector(&a, stream);
}

} // namespace mlx_norms
