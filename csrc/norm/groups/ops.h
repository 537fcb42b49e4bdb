// Copyright © 2026 mlx_norms contributors
//
// The ops of groups, samples and batches as C++ functions of their arguments,
// which have the names of the public functions' parameters: mlx_norms/ops says
// what they are. Null stands for an array that is not given.

#pragma once

#include <optional>
#include <string>

#include "csrc/common/types.h"
#include "mlx/mlx.h"

namespace mlx_norms {

struct GroupNormArguments {
  const array* x = nullptr;
  int num_groups = 1;
  const array* weight = nullptr;
  const array* bias = nullptr;
  float eps = 1e-5f;
  bool pytorch_compatible = false;
  std::optional<std::string> activation;
  const array* mean = nullptr;
  const array* var = nullptr;
  bool training = false;
  float momentum = 0.1f;
  std::optional<mx::Dtype> dtype;
  mx::StreamOrDevice stream;
};

array group_norm(const GroupNormArguments& arguments);
array instance_norm(const GroupNormArguments& arguments);

// The normalized x and, in training with running statistics, the new ones.
Arrays batch_norm(const GroupNormArguments& arguments);

} // namespace mlx_norms
