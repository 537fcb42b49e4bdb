// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <unordered_map>

#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/gpu/launch_plan.h"
#include "mlx/allocator.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace mlx_norms::gpu {

namespace {

mx::array without_memory(
    mx::Shape shape,
    mx::Dtype dtype,
    std::shared_ptr<mx::Primitive> primitive) {
  mx::array a(std::move(shape), dtype, std::move(primitive), {});
  set_no_memory(a);
  return a;
}

// MLX's conversion of contiguous arrays. It allocates memory for as many
// elements as its input has before it checks whether its output has any. The
// arrays are made once and have no memory between calls.
struct Conversion {
  std::shared_ptr<mx::Primitive> primitive;
  // Its item size is not the output's, so its buffer is never donated.
  std::vector<mx::array> input{without_memory({1}, mx::uint16, nullptr)};
  std::vector<mx::array> output{without_memory({0}, mx::uint8, primitive)};

  explicit Conversion(mx::Stream stream)
      : primitive(mx::astype(mx::array(0), mx::uint8, stream).primitive_ptr()) {
  }
};

// Most calls are on the stream of the one before, so no map is searched.
Conversion& conversion_on(mx::Stream stream) {
  thread_local std::unordered_map<int, Conversion> made;
  thread_local std::pair<int, Conversion*> last{-1, nullptr};
  if (last.first != stream.index) {
    last = {
        stream.index, &made.try_emplace(stream.index, stream).first->second};
  }
  return *last.second;
}

} // namespace

// allocator::malloc returns host-accessible memory, to which a GPU stores
// slowly. What allocates GPU memory from MLX's pool, with its counts, limits
// and donation, is not exported, but MLX's own ops use it.
void allocate(
    array& out,
    mx::Stream stream,
    std::initializer_list<const array*> from) {
  if (take_buffer(out, from)) {
    return;
  }
  if (out.nbytes() == 0) {
    out.set_data(mx::allocator::malloc(0));
    return;
  }
  auto& [primitive, input, output] = conversion_on(stream);
  auto& bytes = input[0];
  auto& memory = output[0];
  if (bytes.data_size() != out.nbytes()) {
    bytes.copy_shared_buffer(
        bytes, bytes.strides(), bytes.flags(), out.nbytes());
  }
  primitive->eval_gpu(input, output);
  const auto& shape = out.shape();
  bool column = std::ranges::count(shape, 1) + 1 >= std::ssize(shape);
  out.copy_shared_buffer(
      memory, out.strides(), {true, true, column}, out.size());
  memory.copy_shared_buffer(bytes); // `bytes` has no memory
}

} // namespace mlx_norms::gpu
