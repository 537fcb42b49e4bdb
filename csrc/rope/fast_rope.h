// Copyright © 2026 mlx_norms contributors

#pragma once

#include <cmath>
#include <optional>

#include "csrc/common/types.h"
#include "mlx/ops.h"

namespace mlx_norms {

// mx::fast::rope. The simulated device has another one, whose sines and
// cosines are off as far as those of MLX's kernel for Metal may be.
array fast_rope(
    const array& x,
    int dims,
    bool traditional,
    std::optional<float> base,
    float scale,
    const array& offset,
    const std::optional<array>& freqs,
    mx::Stream s);

// The same of x [B, H, L, D] in float32, by operations, and by the sines and
// cosines that sin(theta) and cos(theta) are.
template <typename Sin, typename Cos>
array rope_by(
    Sin sin,
    Cos cos,
    const array& x,
    int dims,
    bool traditional,
    std::optional<float> base,
    float scale,
    const array& offset,
    const std::optional<array>& freqs,
    mx::Stream s) {
  int half = dims / 2;
  auto of_base = [&] {
    array step(-std::log(*base) / half);
    return mx::exp(mx::multiply(mx::arange(half, mx::float32, s), step, s), s);
  };
  auto inverse =
      freqs ? mx::reciprocal(mx::astype(*freqs, mx::float32, s), s) : of_base();
  auto tokens = mx::arange(x.shape(-2), mx::float32, s);
  auto first = offset.size() > 1 ? mx::reshape(offset, {-1, 1, 1, 1}, s)
                                 : mx::reshape(offset, {1}, s);
  auto positions = mx::add(mx::reshape(tokens, {x.shape(-2), 1}, s), first, s);
  auto theta =
      mx::multiply(mx::multiply(positions, array(scale), s), inverse, s);
  array sines = sin(theta), cosines = cos(theta);

  auto parts = mx::split(mx::astype(x, mx::float32, s), mx::Shape{dims}, -1, s);
  int axis = traditional ? -1 : -2;
  auto pairs = mx::split(
      mx::unflatten(
          parts[0],
          -1,
          traditional ? mx::Shape{half, 2} : mx::Shape{2, half},
          s),
      2,
      axis,
      s);
  auto a = mx::squeeze(pairs[0], axis, s), b = mx::squeeze(pairs[1], axis, s);
  auto product = [&](const array& u, const array& v) {
    return mx::multiply(u, v, s);
  };
  auto y = mx::stack(
      {mx::subtract(product(a, cosines), product(b, sines), s),
       mx::add(product(a, sines), product(b, cosines), s)},
      axis,
      s);
  y = mx::flatten(y, -2, -1, s);
  if (dims < x.shape(-1)) {
    y = mx::concatenate({y, parts[1]}, -1, s);
  }
  return mx::astype(y, x.dtype(), s);
}

} // namespace mlx_norms
