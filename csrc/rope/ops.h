// Copyright © 2026 mlx_norms contributors
//
// The ops as C++ functions. The Python docstrings in csrc/python say what the
// arguments are. Null stands for an array that is not given.

#pragma once

#include <optional>
#include <string>
#include <variant>

#include "csrc/rope/norm_rope.h"

namespace mlx_norms {

// What both ops take besides their tensors and weights.
struct RopeOptions {
  float eps = 1e-5f;
  std::optional<int> dims;
  bool traditional = false;
  std::optional<float> base; // or freqs
  float scale = 1.0f;
  std::variant<int, array> offset = 0;
  const array* freqs = nullptr;
  float q_scale = 1.0f;
  float weight_offset = 0.0f;
  bool rope_first = false;
  bool head_major = true;
  std::optional<std::string> rounding;
  mx::StreamOrDevice stream;
};

// norm_rope with these arguments, which are checked.
Call<NormRope>
norm_rope_call(const array& x, const array* weight, const RopeOptions& options);

array norm_rope(
    const array& x,
    const array* weight,
    const RopeOptions& options);

// {q, k} or, with v, {q, k, v}
Arrays qk_norm_rope(
    const array& q,
    const array& k,
    const array* q_weight,
    const array* k_weight,
    const array* v,
    const RopeOptions& options);

} // namespace mlx_norms
