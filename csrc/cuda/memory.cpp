// Copyright © 2026 mlx_norms contributors

#include <unordered_map>

#include "csrc/outputs.h"
#include "mlx/allocator.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace mlx_norms {

namespace mx = mlx::core;

namespace {

// No memory, and none of MLX's to take back.
mx::allocator::Data none() {
  return mx::allocator::Data(mx::allocator::Buffer{nullptr}, nullptr);
}

// An array of which MLX may know the number of its bytes only.
mx::array without_memory(size_t size) {
  mx::array bytes({1}, mx::uint8, nullptr, {});
  bytes.set_data(none(), size, {1}, {true, true, true});
  return bytes;
}

// MLX's conversion of contiguous arrays, which takes memory for as many
// elements as its input has before it looks whether its output has any.
std::shared_ptr<mx::Primitive> conversion_on(mx::Stream stream) {
  thread_local std::unordered_map<int, std::shared_ptr<mx::Primitive>> made;
  auto& conversion = made[stream.index];
  if (!conversion) {
    conversion = mx::astype(mx::array(0), mx::uint8, stream).primitive_ptr();
  }
  return conversion;
}

} // namespace

// allocator::malloc gives memory that the host can touch, which is slow to
// write from a GPU. What gives the GPU's own from MLX's pool, so that its
// counts, limits and donation hold, is not exported, but MLX's own ops use it.
void allocate_new(mx::array& out, mx::Stream stream) {
  if (stream.device == mx::Device::cpu || out.nbytes() == 0) {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    return;
  }
  auto conversion = conversion_on(stream);
  mx::Shape empty{0};
  std::vector<mx::array> memory{mx::array(empty, mx::uint8, conversion, {})};
  conversion->eval_gpu({without_memory(out.nbytes())}, memory);
  out.set_data(none()); // sets flags and strides
  out.copy_shared_buffer(memory[0], out.strides(), out.flags(), out.size());
}

} // namespace mlx_norms
