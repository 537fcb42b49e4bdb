// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/prologue.h"

#include <algorithm>

#include "csrc/common/float16.h"

namespace mlx_norms {

namespace {

// A product of an array and a number, or another that broadcasts to it.
struct Product {
  const array& x;
  const array* factor;
  float number = 1.0f;
};

// Whether it broadcasts as a factor does: with its last axis.
bool has_last_axis(const array& a, const array& x) {
  return a.ndim() > 0 && a.shape(-1) == x.shape(-1);
}

// `factor`, in a product with x, as it was before it was broadcast.
std::optional<Product> as_broadcast(const array& x, const array& factor) {
  if (!is_pending(factor, "Broadcast") || repeats_along_row(x)) {
    return std::nullopt;
  }
  const auto& whole = factor.inputs()[0];
  if (whole.ndim() == 0) {
    auto number = as_number(whole);
    return number ? std::optional(Product{x, nullptr, *number}) : std::nullopt;
  }
  return has_last_axis(whole, x) ? std::optional(Product{x, &whole})
                                 : std::nullopt;
}

std::optional<Product> as_product(const array& p, mx::Stream stream) {
  if (!is_pending(p, "Multiply") || p.primitive().stream() != stream) {
    return std::nullopt;
  }
  const auto& a = p.inputs()[0];
  const auto& b = p.inputs()[1];
  if (auto found = as_broadcast(a, b)) {
    return found;
  }
  if (auto found = as_broadcast(b, a)) {
    return found;
  }
  if (repeats_along_row(a) || repeats_along_row(b)) {
    return std::nullopt;
  }
  return Product{a, &b};
}

// As in mlx_lm's gemma3.
Arrays clip_residual(const Arrays& in) {
  auto sum =
      mx::add(mx::astype(in[0], mx::float32), mx::astype(in[1], mx::float32));
  auto clipped = mx::clip(sum, array(-kFloat16Max), array(kFloat16Max));
  return {mx::astype(clipped, mx::float16)};
}

// MLX's names for the compiled function, which depend on its structure, its
// dtypes and its constants: without shapes, and with them.
const std::vector<std::string>& clip_residual_names() {
  thread_local std::vector<std::string> names;
  // While a function is traced both are empty: MLX compiles nothing then.
  if (names.empty() || names[0] == names[1]) {
    names.clear();
    auto like = mx::zeros({1, 1}, mx::float16);
    for (bool shapeless : {true, false}) {
      names.push_back(
          compiled_name(clip_residual, {like, like + like}, shapeless));
    }
  }
  return names;
}

// Whether `a` is the float16 sum that mlx_lm's gemma3 clips in float32. The two
// bounds are inputs, too.
bool is_clamped_sum(const array& a) {
  auto* compiled = a.dtype() == mx::float16 ? as_compiled(a) : nullptr;
  return compiled && a.inputs().size() == 4 && is_like(a.inputs()[0], a) &&
      is_like(a.inputs()[1], a) &&
      std::ranges::count(clip_residual_names(), compiled->lib_name()) > 0;
}

// A product of a pending sum and an array of one element, as gemma4's layers
// return it.
struct ProductOfSum {
  const array& sum;
  const array& factor;
};

std::optional<ProductOfSum> as_product_of_sum(const array& p) {
  if (!is_pending(p, "Multiply")) {
    return std::nullopt;
  }
  for (int i : {0, 1}) {
    const auto& sum = p.inputs()[i];
    const auto& factor = p.inputs()[1 - i];
    if (is_pending(factor, "Broadcast") && factor.inputs()[0].size() == 1 &&
        is_pending_sum(sum)) {
      return ProductOfSum{sum, factor.inputs()[0]};
    }
  }
  return std::nullopt;
}

} // namespace

const array& before_cast(const array& x, mx::Stream stream) {
  if (x.dtype() != mx::float32 || !is_pending(x, "AsType") ||
      x.primitive().stream() != stream) {
    return x;
  }
  const auto& narrow = x.inputs()[0];
  bool read = narrow.dtype() == mx::float16 || narrow.dtype() == mx::bfloat16;
  return read ? narrow : x;
}

array clamped_sum(const array& x, const array& residual, mx::Stream stream) {
  mx::StreamContext context(stream);
  return mx::compile(clip_residual, /* shapeless= */ true)({x, residual})[0];
}

void Prologue::set(NormSpec& spec) const {
  spec.operands.set(kResidual);
  spec.operands.set(kResidual2, residual2.has_value());
  spec.operands.set(kFactor, factor.has_value());
  spec.number = number;
  spec.clamp = clamp;
  spec.factor_of_sum = factor_of_sum;
}

std::optional<Prologue> prologue_of(
    const array& h,
    Rounding rounding,
    mx::Stream stream,
    const HeldOnce& held_once) {
  if (auto product = as_product_of_sum(h)) {
    auto& [sum, factor] = *product;
    const auto& in = sum.inputs();
    if (sum.primitive().stream() != stream || !held_once(sum)) {
      return std::nullopt;
    }
    return Prologue{
        .x = in[0], .residual = in[1], .factor = factor, .factor_of_sum = true};
  }
  bool clamped = is_clamped_sum(h);
  if (!clamped && !is_pending_sum(h)) {
    return std::nullopt;
  }
  const auto& operands = h.inputs();
  if (clamped) {
    return Prologue{.x = operands[0], .residual = operands[1], .clamp = true};
  }
  // Rounding late, a factor's product would not be rounded as it is here.
  for (int i : {1, 0}) {
    if (rounding == Rounding::Late || !held_once(operands[i])) {
      continue;
    }
    if (auto product = as_product(operands[i], stream)) {
      auto& [x, factor, number] = *product;
      return Prologue{
          .x = x,
          .residual = operands[1 - i],
          .factor = factor ? OptionalArray(*factor) : std::nullopt,
          .number = number};
    }
  }
  for (int i : {1, 0}) {
    const auto& first = operands[i];
    if (is_pending_sum(first) && first.primitive().stream() == stream &&
        held_once(first)) {
      const auto& in = first.inputs();
      return Prologue{
          .x = in[0], .residual = in[1], .residual2 = operands[1 - i]};
    }
  }
  return Prologue{operands[0], operands[1]};
}

} // namespace mlx_norms
