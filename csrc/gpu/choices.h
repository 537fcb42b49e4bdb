// Copyright © 2026 mlx_norms contributors
//
// What is chosen for Apple's GPUs, by their generation. Nobody has measured on
// one yet: `.ci/mac quick` times each beside others, and a file that it wrote
// changes numbers here.

#pragma once

#include <optional>
#include <string>

namespace mlx_norms {

struct Choices {
  int generation;   // the first that has them, as MLX counts: 13 is M1
  int product_rows; // the most rows of a product in one launch
  // SIMD-groups of such a product's threadgroups, up to 8; 0: by its weights.
  int product_simds;
  int few_threads; // a launch of so many takes as long as one thread
  // Where each SIMD-group has rows of its own, and a launch no more
  // threadgroups than few_groups, threads of each; 0: as many as in a launch of
  // many rows.
  int group_threads;
  int few_groups;
  // 1: Metal's own conversions of bfloat16, of texts: no metallib is loaded.
  int native_bfloat;
};

// MLX's products read a weight once for up to 5 rows, and from generation 15 on
// there are faster matrix units.
inline constexpr Choices kChoices[] = {
    {0, 8, 0, 0, 0, 64, 0},
    {15, 4, 0, 0, 0, 64, 0},
};

// Those of a generation, but for what was set.
Choices choices_of(int generation);

// For benchmarks: sets the choice of this name; none: as in the table. Throws
// std::invalid_argument if there is none of this name.
void set_choice(const std::string& name, std::optional<int> value);

} // namespace mlx_norms
