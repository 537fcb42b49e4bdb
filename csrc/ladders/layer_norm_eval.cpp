// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <bit>
#include <string_view>

#include "csrc/common/outputs.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/memory.h"
#include "csrc/gpu/rows.h"
#include "csrc/ladders/layer_norm.h"

namespace mlx_norms {

namespace {

// Function constants and buffers of kernels/ladders/layer_norm.
enum Constant { kHasWeight = 60, kHasBias = 61, kAligned = 62, kLooped = 63 };
enum Buffer {
  kX = 0,
  kWeight = 1,
  kBias = 2,
  kY = 3,
  kRows = 4,
  kLength = 5,
  kEps = 6
};

constexpr int kSimdSize = 32;
constexpr int kMaxThreads = 1024;
constexpr int kFour = 4;
constexpr int kMaxFours = 4; // in a thread's registers

// Which kernel normalises rows of one length, and how they are shared out.
struct Geometry {
  KernelName kernel;
  int threads;         // of a group
  int rows = 1;        // that it takes
  bool looped = false; // regtiled's row is longer than its registers
};

// The fewest SIMD-groups whose threads have so many elements each of a row.
int threads_for(int length, int elements) {
  int simds = ceil_div(ceil_div(length, elements), kSimdSize);
  return std::min(kSimdSize * simds, kMaxThreads);
}

// As few fours a thread as hold the row.
Geometry regtiled(int length, int item_size) {
  int fours = 1;
  while (fours < kMaxFours && length > kMaxThreads * kFour * fours) {
    fours *= 2;
  }
  return {
      {"layer_norm_regtiled", item_size, fours},
      threads_for(length, kFour * fours),
      1,
      length > kMaxThreads * kFour * fours};
}

Geometry geometry_of(std::string_view rung, int length, int item_size) {
  if (rung == "naive") {
    return {{"layer_norm_naive", item_size}, 1024, 1024};
  }
  if (rung == "naive_32") {
    return {{"layer_norm_naive_32", item_size}, 32, 32};
  }
  if (rung == "shared") {
    auto most = static_cast<uint32_t>(std::min(length, kMaxThreads));
    return {
        {"layer_norm_shared", item_size},
        static_cast<int>(std::bit_floor(most))};
  }
  if (rung == "simd") {
    return {{"layer_norm_simd", item_size}, threads_for(length, 1)};
  }
  if (rung == "regtiled") {
    return regtiled(length, item_size);
  }
  for (auto [name, family] :
       {std::pair{"vectorized", "layer_norm_vectorized"},
        std::pair{"fused", "layer_norm_fused"},
        std::pair{"robust", "layer_norm_robust"},
        std::pair{"welford", "layer_norm_welford"}}) {
    if (rung == name) {
      return {{family, item_size}, threads_for(length, kFour)};
    }
  }
  throw std::logic_error("[mlx_norms] A rung has no kernel.");
}

// Whether every four of elements of every row begins where a vector may.
bool in_fours(const array& a) {
  int64_t bytes = kFour * a.itemsize();
  return a.shape(-1) % kFour == 0 && a.offset() % bytes == 0;
}

} // namespace

void LayerNormRung::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  release_inputs(inputs, outputs);
  NormInputs in(spec_, inputs.data());
  auto& y = outputs[0];
  gpu::allocate(y, stream(), {&in.x});
  if (y.size() == 0) {
    return;
  }
  int length = y.shape(-1);
  int32_t rows = row_count(in.x);
  auto geometry = geometry_of(rung_.name, length, y.itemsize());

  LaunchPlan plan(stream());
  auto& launch = plan.launch(geometry.kernel);
  launch.constant(kHasWeight, spec_.weight);
  launch.constant(kHasBias, spec_.bias);
  launch.constant(
      kAligned,
      in_fours(y) && std::all_of(inputs.begin(), inputs.end(), in_fours));
  launch.constant(kLooped, geometry.looped);
  launch.input(kX, in.x);
  if (in.weight) {
    launch.input(kWeight, *in.weight);
  }
  if (in.bias) {
    launch.input(kBias, *in.bias);
  }
  launch.output(kY, y);
  if (geometry.rows > 1) {
    launch.scalar(kRows, rows);
  }
  launch.scalar(kLength, length);
  launch.scalar(kEps, spec_.eps);
  launch.groups[0] = ceil_div(rows, geometry.rows);
  launch.group[0] = geometry.threads;
  encode(std::move(plan));
}

} // namespace mlx_norms
