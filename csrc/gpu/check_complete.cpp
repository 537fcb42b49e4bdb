// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/check_complete.h"

#include "csrc/common/kernel_error.h"

namespace mlx_norms {

namespace {

template <typename List>
const auto* given(const List& list, int index) {
  using Item = typename List::value_type;
  auto item = std::ranges::find(list, index, &Item::index);
  return item == list.end() ? nullptr : &*item;
}

bool has_argument(const Launch& launch, const KernelNeeds::Argument& argument) {
  switch (argument.kind) {
    case KernelNeeds::Kind::Read:
      return given(launch.inputs, argument.index);
    case KernelNeeds::Kind::Written:
      return given(launch.outputs, argument.index);
    default:
      return launch.words_set.test(argument.index);
  }
}

} // namespace

const KernelNeeds* needs_of(const std::string& kernel) {
  for (const auto& needs : kernel_needs()) {
    auto is_it = [&](const auto& name) { return name.text == kernel; };
    if (std::ranges::any_of(needs.names, is_it)) {
      return &needs;
    }
  }
  return nullptr;
}

void check_complete(const Launch& launch) {
  auto kernel = launch.kernel.text();
  auto refuse = [&](const std::string& what) {
    throw KernelError(
        "[mlx_norms] The launch of kernel " + kernel + " " + what + ".");
  };
  const auto* needs = needs_of(kernel);
  if (!needs) {
    return refuse("names no kernel of this build");
  }
  for (const auto& constant : needs->constants) {
    if (!given(launch.constants, constant.index)) {
      refuse(std::string("leaves out its constant ") + constant.name);
    }
  }
  for (const auto& argument : needs->arguments) {
    bool wanted = argument.condition == KernelNeeds::kAlways ||
        (argument.condition != KernelNeeds::kComputed &&
         given(launch.constants, argument.condition)->value);
    if (wanted && !has_argument(launch, argument)) {
      refuse(std::string("leaves out its argument ") + argument.name);
    }
  }
}

} // namespace mlx_norms
