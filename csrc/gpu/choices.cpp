// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/choices.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <stdexcept>

namespace mlx_norms {

namespace {

constexpr int kByTable = -1;

// native_bfloat is not among them: what is compiled stays so.
struct Switch {
  const char* name;
  int Choices::* choice;
  std::atomic<int> forced = kByTable;
};

Switch switches[] = {
    {"product_simds", &Choices::product_simds},
    {"few_threads", &Choices::few_threads},
    {"group_threads", &Choices::group_threads},
    {"few_groups", &Choices::few_groups},
};

} // namespace

Choices choices_of(int generation) {
  auto next =
      std::ranges::upper_bound(kChoices, generation, {}, &Choices::generation);
  auto found = *std::prev(next == std::begin(kChoices) ? next + 1 : next);
  for (const auto& each : switches) {
    if (int forced = each.forced; forced != kByTable) {
      found.*each.choice = forced;
    }
  }
  return found;
}

void set_choice(const std::string& name, std::optional<int> value) {
  auto* found = std::ranges::find(switches, name, &Switch::name);
  if (found == std::end(switches)) {
    throw std::invalid_argument("[mlx_norms] There is no choice " + name + ".");
  }
  found->forced = value.value_or(kByTable);
}

} // namespace mlx_norms
