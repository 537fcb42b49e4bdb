// Copyright © 2026 mlx_norms contributors

#include "csrc/common/activations.h"

#include <cmath>
#include <numbers>

#include "mlx/mlx.h"

namespace mlx_norms {

array activated(Activation activation, const array& a, mx::Stream s) {
  auto number = [&](double v) {
    return array(static_cast<float>(v), a.dtype());
  };
  switch (activation) {
    case Activation::Sigmoid:
      return mx::sigmoid(a, s);
    case Activation::Silu:
      return mx::multiply(a, mx::sigmoid(a, s), s);
    case Activation::Gelu: {
      // As Python writes it, 1 after e: MLX's compile names the order.
      auto e = mx::erf(mx::divide(a, number(std::numbers::sqrt2), s), s);
      auto y = mx::multiply(a, mx::add(e, number(1), s), s);
      return mx::divide(y, number(2), s);
    }
    case Activation::Relu2:
      return mx::square(mx::maximum(a, number(0), s), s);
    case Activation::None:
      return a;
  }
  return a;
}

array slope(Activation activation, const array& a, mx::Stream s) {
  auto number = [&](double v) {
    return array(static_cast<float>(v), a.dtype());
  };
  if (activation == Activation::None) {
    return mx::ones_like(a, s);
  }
  if (activation == Activation::Relu2) {
    return mx::multiply(number(2), mx::maximum(a, number(0), s), s);
  }
  if (activation == Activation::Gelu) {
    auto e = mx::erf(mx::divide(a, number(std::numbers::sqrt2), s), s);
    auto below = mx::multiply(mx::add(number(1), e, s), number(0.5), s);
    auto density = mx::exp(mx::multiply(mx::square(a, s), number(-0.5), s), s);
    auto root = number(std::sqrt(0.5 * std::numbers::inv_pi));
    return mx::add(
        below, mx::multiply(mx::multiply(a, density, s), root, s), s);
  }
  auto of = mx::sigmoid(a, s);
  auto of_sigmoid = mx::multiply(of, mx::subtract(number(1), of, s), s);
  return activation == Activation::Sigmoid
      ? of_sigmoid
      : mx::add(of, mx::multiply(a, of_sigmoid, s), s);
}

} // namespace mlx_norms
