// Copyright © 2026 mlx_norms contributors
//
// The ops as C++ functions of their arguments, which have the names of the
// public functions' parameters: mlx_norms/ops says what they are. Null stands
// for an array that is not given.

#pragma once

#include <optional>
#include <string>
#include <variant>

#include "csrc/rope/norm_rope.h"

namespace mlx_norms {

// Arguments of all; norm_rope calls q x.
struct RopeArguments {
  const array* q = nullptr;
  const array* k = nullptr;
  const array* q_weight = nullptr;
  const array* k_weight = nullptr;
  const array* v = nullptr;
  float eps = 1e-5f;
  std::optional<int> dims;
  std::string layout = "BLHD";
  bool traditional = false;
  std::optional<float> base; // or freqs
  float scale = 1.0f;
  std::variant<bool, int, array> offset =
      0; // not a bool, which Python has for an int
  const array* freqs = nullptr;
  float q_multiplier = 1.0f;
  float weight_offset = 0.0f;
  bool rope_first = false;
  std::string output_layout = "BHLD";
  std::optional<std::string> rounding;
  mx::StreamOrDevice stream;
};

// norm_rope with these arguments, which are checked.
Call<NormRope> norm_rope_call(const RopeArguments& arguments);

array norm_rope(const RopeArguments& arguments);

// {q, k} or, with v, {q, k, v}
Arrays qk_norm_rope(const RopeArguments& arguments);

} // namespace mlx_norms
