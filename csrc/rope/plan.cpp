// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <bit>
#include <cmath>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/rope/norm_rope.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

// On CUDA the norms' geometry, in which results have their bits. On Metal one
// SIMD-group has a row, with at most 16 elements per thread if it then holds
// the row, as angles are in registers, too (tools/agx).
Geometry geometry_of(const array& x, Backend backend) {
  constexpr int kElements = 16;
  int length = x.shape(-1);
  auto of_norm = geometry_for(RowKernel::Heads, length, x.itemsize(), backend);
  int width = of_norm.width;
  int vectors = std::min(of_norm.vectors, kElements / width);
  unsigned each = ceil_div(ceil_div(length, width), vectors);
  int lanes = std::bit_ceil(each);
  bool fits = backend == Backend::Metal && lanes <= Geometry::kSimdSize;
  return fits ? Geometry{width, vectors, 1, false, lanes} : of_norm;
}

// Where the elements are that a vector's are rotated with.
int32_t
partner_of(const Geometry& geometry, int length, int dims, bool traditional) {
  using namespace kernels;
  int half = dims / 2;
  if (geometry.is_scattered(length)) {
    return kScattered;
  }
  if (traditional) {
    return kInVector;
  }
  bool is_half = half == geometry.chunk() / 2 && dims == length;
  if (is_half && geometry.vectors % 2 == 0) {
    return kInHalf;
  }
  if (is_half && geometry.lanes > 1) {
    return kInLane;
  }
  return half % geometry.width == 0 ? kInRow : kScattered;
}

// So many that the threads of a row compute angles for several heads, if there
// are enough rows to keep a GPU busy.
int32_t heads_at_once(int64_t threads, mx::Stream stream) {
  constexpr int64_t kMaxHeads = 8;
  constexpr int kFewThreads = 16384; // where a GPU does not say
  int few = device_limits(stream).few_threads;
  return std::clamp<int64_t>(
      threads / (few > 0 ? few : kFewThreads), 1, kMaxHeads);
}

} // namespace

LaunchPlan NormRope::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) const {
  using K = kernels::norm_rope;
  LaunchPlan plan(stream);
  if (!suits(inputs, stream)) { // a longer row than a shapeless function had
    throw std::runtime_error(
        std::string("[") + name() + "] A GPU kernel takes no head_dim of " +
        std::to_string(inputs[0].shape(-1)) + ".");
  }
  // A tensor that is not empty takes the place of an empty one, of which no
  // head is computed.
  auto is_full = [&](int i) { return inputs[tensor_at(i)].size() > 0; };
  int full = 0;
  while (full < tensors() && !is_full(full)) {
    ++full;
  }
  if (full == tensors()) {
    return plan;
  }
  struct BoundTensor {
    const array* x = nullptr;
    const array* y = nullptr;
    const array* weight = nullptr;
    int32_t heads = 0;
  };
  BoundTensor of[3]; // x or q; k; v
  int64_t all_heads = 0;
  for (int i = 0; i < tensors(); ++i) {
    int bound = is_full(i) ? i : full;
    auto& tensor = of[i < rotated ? i : 2];
    const auto& x = inputs[tensor_at(i)];
    tensor = {
        &inputs[tensor_at(bound)],
        &outputs[bound],
        weight_of(inputs, i),
        is_full(i) ? x.shape(-2) : 0};
    row_count(x); // may throw
    all_heads += tensor.heads;
  }
  const auto& x = *of[0].x;
  int length = x.shape(-1);
  int dims = rotated_dims(x);
  int positions = x.shape(-3);
  auto tokens =
      static_cast<int32_t>(of[0].x->size() / length / of[0].x->shape(-2));
  auto backend = backend_of(stream);
  auto geometry = geometry_of(x, backend);
  int width = geometry.width;
  auto read = [&](const array* a) {
    return a ? std::optional(read_rows(*a, width, plan)) : std::nullopt;
  };
  auto x1 = read(of[0].x), x2 = read(of[1].x), x3 = read(of[2].x);
  auto weight = read_optional(of[0].weight, width, plan);
  auto weight2 = read_optional(of[1].weight, width, plan);
  const auto& offset = inputs[offset_at()];
  auto at_once = heads_at_once(tokens * all_heads * geometry.lanes, stream);

  auto& launch = plan.launch({"norm_rope", width, geometry.vectors});
  launch.set(K::center, false);
  launch.set(K::l2, false);
  launch.set(K::eps_bounds, false);
  bind_geometry<K>(launch, geometry, length);
  launch.set(K::has_weight_offset, norm.weight_offset != 0.0f);
  launch.set(K::has_freqs, has_freqs);
  launch.set(K::normalized, normalized);
  launch.set(K::rope_first, rope_first);
  launch.set(K::head_major, head_major);
  launch.set(K::traditional, traditional);
  launch.set(K::round_early, !late());
  launch.set(K::has_multiplier, norm.is_multiplied());
  launch.set(K::partner, partner_of(geometry, length, dims, traditional));
  bind_rows(launch, K::x, x1);
  bind_rows(launch, K::x2, x2);
  bind_rows(launch, K::x3, x3);
  bind_rows(launch, K::weight, weight);
  bind_rows(launch, K::weight2, weight2);
  bind_rows(launch, K::y, of[0].y, width);
  bind_rows(launch, K::y2, of[1].y, width);
  bind_rows(launch, K::y3, of[2].y, width);
  launch.set(K::offsets, offset);
  if (has_freqs) {
    launch.set(K::freqs, inputs[offset_at() + 1]);
  }
  launch.set(
      K::counts,
      {tokens, positions, of[0].heads, of[1].heads, of[2].heads, at_once});
  launch.set(
      K::sequences_per_offset,
      tokens / positions / static_cast<int32_t>(offset.size()));
  launch.set(K::length, length);
  launch.set(K::dims, dims);
  launch.set(K::eps, norm.eps);
  launch.set(K::weight_offset, norm.weight_offset);
  launch.set(K::log2_base, std::log2(float{base}));
  launch.set(K::position_scale, scale);
  launch.set(K::multiplier, norm.multiplier);

  uint32_t items = 0;
  for (const auto& tensor : of) {
    items += static_cast<uint32_t>(tokens) *
        static_cast<uint32_t>(ceil_div(tensor.heads, at_once));
  }
  launch.groups[0] = ceil_div<uint32_t>(items, geometry.rows_per_group());
  launch.group[0] = geometry.group_size();
  launch.threads_per_core = width * geometry.vectors <= 16 ? 768 : 512;
  return plan;
}

} // namespace mlx_norms
