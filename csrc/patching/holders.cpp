// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/holders.h"

#include <utility>

namespace mlx_norms {

namespace {

long holders_of(const array& a);
std::shared_ptr<void> descriptor_of(const array& a);
void set_descriptor(array& a, std::shared_ptr<void> descriptor);

template <auto kDescriptor>
struct Descriptor {
  friend long holders_of(const array& a) {
    return (a.*kDescriptor).use_count();
  }
  friend std::shared_ptr<void> descriptor_of(const array& a) {
    return a.*kDescriptor;
  }
  friend void set_descriptor(array& a, std::shared_ptr<void> descriptor) {
    using Pointer = std::remove_reference_t<decltype(a.*kDescriptor)>;
    a.*kDescriptor = std::static_pointer_cast<typename Pointer::element_type>(
        std::move(descriptor));
  }
};
// Access is not checked for the arguments of an explicit instantiation.
template struct Descriptor<&array::array_desc_>;

} // namespace

size_t count_holders(const array& a) {
  return holders_of(a);
}

bool is_held_once(const array& a) {
  return count_holders(a) == 1;
}

WeakArray::WeakArray(const array& a) : descriptor_(descriptor_of(a)) {}

OptionalArray WeakArray::get() const {
  auto descriptor = descriptor_.lock();
  if (!descriptor) {
    return std::nullopt;
  }
  static const array any(0.0f);
  auto a = any;
  set_descriptor(a, std::move(descriptor));
  return a;
}

} // namespace mlx_norms
