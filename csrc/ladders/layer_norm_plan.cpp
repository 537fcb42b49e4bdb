// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <bit>
#include <string_view>

#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/ladders/layer_norm.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

constexpr int kSimdSize = 32;
constexpr int kMaxThreads = 1024;
constexpr int kFour = 4;
constexpr int kMaxFours = 4; // in a thread's registers

// The arguments of a rung's kernel.
struct LayerNormRows {
  const NormInputs& in;
  const array& y;
  bool aligned; // all fours of elements are aligned
  bool looped;  // regtiled's row does not fit in its registers
  float eps;
};

template <typename K>
void fill(Launch& launch, const LayerNormRows& rows) {
  const auto& [in, y, aligned, looped, eps] = rows;
  launch.set(K::rung_has_weight, in[kWeight] != nullptr);
  launch.set(K::rung_has_bias, in[kBias] != nullptr);
  if constexpr (requires { K::rung_aligned; }) {
    launch.set(K::rung_aligned, aligned);
  }
  if constexpr (requires { K::rung_looped; }) {
    launch.set(K::rung_looped, looped);
  }
  launch.set(K::x, in.x());
  if (in[kWeight]) {
    launch.set(K::weight, *in[kWeight]);
  }
  if (in[kBias]) {
    launch.set(K::bias, *in[kBias]);
  }
  launch.set(K::y, y);
  if constexpr (requires { K::rows; }) {
    launch.set(K::rows, row_count(y));
  }
  launch.set(K::length, y.shape(-1));
  launch.set(K::eps, eps);
}

// The kernel for rows of one length, and how it divides them.
struct RungLaunch {
  KernelName kernel;
  void (*fill)(Launch&, const LayerNormRows&);
  int threads;  // per threadgroup
  int rows = 1; // per threadgroup
  bool looped = false;
};

// The threads of the fewest SIMD-groups that have the row with at most so many
// elements per thread.
int threads_for(int length, int elements) {
  int simds = ceil_div(ceil_div(length, elements), kSimdSize);
  return std::min(kSimdSize * simds, kMaxThreads);
}

// The fewest fours per thread that hold the row.
RungLaunch regtiled(int length, int item_size) {
  int fours = 1;
  while (fours < kMaxFours && length > kMaxThreads * kFour * fours) {
    fours *= 2;
  }
  return {
      {"layer_norm_regtiled", item_size, fours},
      fill<kernels::layer_norm_regtiled>,
      threads_for(length, kFour * fours),
      1,
      length > kMaxThreads * kFour * fours};
}

RungLaunch launch_of(std::string_view rung, int length, int item_size) {
  if (rung == "naive") {
    return {
        {"layer_norm_naive", item_size},
        fill<kernels::layer_norm_naive_4>,
        1024,
        1024};
  }
  if (rung == "naive_32") {
    return {
        {"layer_norm_naive_32", item_size},
        fill<kernels::layer_norm_naive_32_4>,
        32,
        32};
  }
  if (rung == "shared") {
    auto threads = static_cast<uint32_t>(std::min(length, kMaxThreads));
    return {
        {"layer_norm_shared", item_size},
        fill<kernels::layer_norm_shared_4>,
        static_cast<int>(std::bit_floor(threads))};
  }
  if (rung == "simd") {
    return {
        {"layer_norm_simd", item_size},
        fill<kernels::layer_norm_simd_4>,
        threads_for(length, 1)};
  }
  if (rung == "regtiled") {
    return regtiled(length, item_size);
  }
  auto by_fours = [&](const char* family, auto fill) -> RungLaunch {
    return {{family, item_size}, fill, threads_for(length, kFour)};
  };
  if (rung == "vectorized") {
    return by_fours(
        "layer_norm_vectorized", fill<kernels::layer_norm_vectorized_4>);
  }
  if (rung == "fused") {
    return by_fours("layer_norm_fused", fill<kernels::layer_norm_fused_4>);
  }
  if (rung == "robust") {
    return by_fours("layer_norm_robust", fill<kernels::layer_norm_robust_4>);
  }
  if (rung == "welford") {
    return by_fours("layer_norm_welford", fill<kernels::layer_norm_welford>);
  }
  throw std::logic_error("[mlx_norms] A rung has no kernel.");
}

// Whether every four elements of every row are an aligned vector.
bool in_fours(const array& a) {
  int64_t bytes = kFour * a.itemsize();
  return a.shape(-1) % kFour == 0 && a.offset() % bytes == 0;
}

} // namespace

LaunchPlan LayerNormRung::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) const {
  LaunchPlan plan(stream);
  const auto& y = outputs[0];
  if (y.size() == 0) {
    return plan;
  }
  auto by = launch_of(rung->name, y.shape(-1), y.itemsize());
  bool aligned =
      in_fours(y) && std::all_of(inputs.begin(), inputs.end(), in_fours);
  auto& launch = plan.launch(by.kernel);
  NormInputs in(spec.operands, inputs.data());
  by.fill(launch, {in, y, aligned, by.looped, spec.eps});
  launch.groups[0] = ceil_div(row_count(y), by.rows);
  launch.group[0] = by.threads;
  return plan;
}

} // namespace mlx_norms
