// Copyright © 2026 mlx_norms contributors
//
// The ops of rows, of other axes and of sums as C++ functions of their
// arguments, which have the names of the public functions' parameters:
// mlx_norms/ops says what they are. Null stands for an array that is not given.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/norm/operands.h"
#include "mlx/mlx.h"

namespace mlx_norms {

using OptionalDtype = std::optional<mx::Dtype>;
using OptionalString = std::optional<std::string>;
// An array or a number, or neither.
using OptionalTerm = std::optional<std::variant<array, float>>;

// Null if the term is a number or not given.
const array* array_of(const OptionalTerm& term);

struct NormArguments {
  NormInputs in = {}; // but those that may be numbers
  float eps = 1e-5f;
  bool eps_inside = false;
  float weight_offset = 0.0f;
  bool clamp = false;
  const array* input_weight = nullptr;
  OptionalString rounding;
  OptionalTerm factor;
  float alpha = 1.0f;
  OptionalTerm scale;
  OptionalTerm shift;
  OptionalString activation;
  bool norm_before_gate = true;
  int num_groups = 1;
  OptionalDtype dtype;
  std::optional<mx::distributed::Group> group;
  int axis = -1;
  mx::StreamOrDevice stream;
};

array rms_norm(const NormArguments& arguments);
array layer_norm(const NormArguments& arguments);
array l2_norm(const NormArguments& arguments);

using TwoArrays = std::pair<array, array>; // {normalized, sum}
TwoArrays add_rms_norm(const NormArguments& arguments);
TwoArrays add_layer_norm(const NormArguments& arguments);
TwoArrays norm_add_norm(const NormArguments& arguments);

// The arguments of ops of several arrays.
struct NormsArguments {
  Arrays xs;
  std::optional<std::vector<OptionalArray>> weights; // one for each
  std::optional<std::vector<float>> multipliers;     // one for each
  float eps = 1e-5f;
  bool eps_inside = false;
  float weight_offset = 0.0f;
  OptionalString rounding;
  OptionalDtype dtype;
  mx::StreamOrDevice stream;
};

Arrays rms_norms(const NormsArguments& arguments);
Arrays l2_norms(const NormsArguments& arguments);

// As MLX takes a number beside x: rounded to its dtype. Without one, 1.
float number_of(const OptionalTerm& factor, mx::Dtype dtype);

} // namespace mlx_norms
