// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/geometry.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <span>

#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "kernels/common/row_instances.h"

namespace mlx_norms {

namespace {

struct Instance {
  int width;
  int vectors;
  int threads; // per threadgroup, at most
};

#define INSTANCE(N, V, THREADS) {N, V, THREADS},
constexpr Instance kForwardOnCuda[] = {FOR_FORWARD_ON_CUDA(INSTANCE)};
constexpr Instance kForwardOnMetal[] = {FOR_FORWARD_ON_METAL(INSTANCE)};
constexpr Instance kHeadsOnCuda[] = {FOR_HEADS_ON_CUDA(INSTANCE)};
constexpr Instance kHeadsOnMetal[] = {FOR_HEADS_ON_METAL(INSTANCE)};
constexpr Instance kBackwardOnCuda[] = {FOR_BACKWARD_ON_CUDA(INSTANCE)};
constexpr Instance kBackwardOnMetal[] = {FOR_BACKWARD_ON_METAL(INSTANCE)};
constexpr Instance kTwoBackwardOnCuda[] = {FOR_TWO_BACKWARD_ON_CUDA(INSTANCE)};
constexpr Instance kTwoBackwardOnMetal[] = {
    FOR_TWO_BACKWARD_ON_METAL(INSTANCE)};

std::span<const Instance> instances_of(RowKernel kernel, Backend backend) {
  using Instances = std::span<const Instance>;
  bool cuda = backend == Backend::Cuda;
  switch (kernel) {
    case RowKernel::Forward:
      return cuda ? Instances(kForwardOnCuda) : kForwardOnMetal;
    case RowKernel::Heads:
      return cuda ? Instances(kHeadsOnCuda) : kHeadsOnMetal;
    case RowKernel::TwoBackward:
      return cuda ? Instances(kTwoBackwardOnCuda) : kTwoBackwardOnMetal;
    default:
      return cuda ? Instances(kBackwardOnCuda) : kBackwardOnMetal;
  }
}

// The instance whose threadgroups may have so many threads, and are the least
// of those; null: none.
const Instance*
instance_of(RowKernel kernel, const Geometry& of, Backend backend) {
  const Instance* least = nullptr;
  for (auto& next : instances_of(kernel, backend)) {
    bool has_threads = next.width == of.width && next.vectors == of.vectors &&
        next.threads >= of.group_size();
    if (has_threads && (!least || next.threads < least->threads)) {
      least = &next;
    }
  }
  return least;
}

// The most elements per vector, so that vectors are aligned in dense rows.
int width_for(int length, int item_size) {
  return item_size == 2 && length % 8 == 0 ? 8 : 4;
}

// Whether there is an instance with this number of vectors per thread.
bool is_built(RowKernel kernel, int width, int vectors, Backend backend) {
  return std::ranges::any_of(
      instances_of(kernel, backend), [&](const Instance& of) {
        return of.width == width && of.vectors == vectors;
      });
}

// So many vectors per thread and as few lanes of a SIMD-group as hold the row.
Geometry in_lanes(int width, int row_vectors, int vectors) {
  auto lanes = std::bit_ceil<unsigned>(ceil_div(row_vectors, vectors));
  return {width, vectors, 1, false, static_cast<int>(lanes)};
}

// SIMD-groups that share a row, `in_one` vectors per lane if it were one, or at
// most `max_simds` of them with a row of several chunks.
Geometry in_simds(int width, int in_one, int vectors, int max_simds) {
  int simds = ceil_div(in_one, vectors);
  bool looped = simds > max_simds;
  return {width, vectors, looped ? max_simds : simds, looped};
}

// The geometry with the fewest vectors past the row's end of those in which one
// SIMD-group has the row. Of equal ones a long row takes the fewest vectors per
// thread, a short one the most that leave it some lanes: sums over lanes are
// most of its time. The shortest gradients want more threads.
std::optional<Geometry> in_simd(
    RowKernel kernel,
    int width,
    int row_vectors,
    int max,
    Backend backend) {
  constexpr int kMaxOfShort = 3;
  bool backward = is_backward(kernel);
  bool is_short = row_vectors <= Geometry::kSimdSize;
  int min_lanes = backward ? 4 : 2;
  std::optional<Geometry> best;
  for (int v = 1; v <= (is_short ? std::min(max, kMaxOfShort) : max); ++v) {
    auto next = in_lanes(width, row_vectors, v);
    if (next.lanes > Geometry::kSimdSize ||
        !is_built(kernel, width, v, backend)) {
      continue;
    }
    bool wanted = is_short && (!backward || row_vectors > 8);
    bool better = !best ||
        (next.lanes >= std::min(min_lanes, best->lanes) &&
         (next.chunk() < best->chunk() ||
          (wanted && next.chunk() == best->chunk())));
    if (better) {
      best = next;
    }
  }
  return best;
}

// The elements of a row that a thread may hold if one SIMD-group has the row,
// and if several share it.
struct Budget {
  int alone;
  int together;
};

// A SIMD-group on its own issues an instruction in several cycles, so forward
// rows are shared as soon as a thread would hold more than 8 elements.
constexpr Budget kForward{8, 16};
constexpr Budget kHeads{32, 16};
constexpr Budget kBackward{8, 16};
constexpr Budget kCenteredBackward{8, 8};

Budget budget_of(RowKernel kernel) {
  switch (kernel) {
    case RowKernel::Forward:
      return kForward;
    case RowKernel::Heads:
      return kHeads;
    case RowKernel::Backward:
      return kBackward;
    default:
      return kCenteredBackward;
  }
}

// Apple's GPUs: as few vectors per thread as possible, since the size of a
// core's register file is not known.
Geometry few_vectors(RowKernel kernel, int length, int width) {
  auto budget = budget_of(kernel);
  int row_vectors = ceil_div(length, width);
  bool one_each =
      kernel != RowKernel::Heads && row_vectors <= Geometry::kSimdSize;
  int max_alone = one_each ? 1 : budget.alone / width;
  if (auto alone =
          in_simd(kernel, width, row_vectors, max_alone, Backend::Metal)) {
    return *alone;
  }
  int in_one = ceil_div(row_vectors, Geometry::kSimdSize);
  int max = budget.together / width;
  // Half of the largest threadgroup first: two of them can share a core.
  int half = Geometry::kMaxSimds / 2;
  for (int v = 1; v <= max; ++v) {
    if (is_built(kernel, width, v, Backend::Metal) && in_one <= half * v) {
      return in_simds(width, in_one, v, half);
    }
  }
  return in_simds(
      width, in_one, max, is_backward(kernel) ? half : Geometry::kMaxSimds);
}

// The most vectors per thread, written by hand after bench/geometry.py on
// an H200; no build reads what that stored, bench/results/h200_geometry.csv.
// With four, an RMSNorm of 4096 elements of 16 bits sums in the order of
// mx.fast, and is bit-identical to it.
int max_cuda_vectors(bool backward, int width, int row_vectors) {
  bool wide = width == 8;
  if (backward) {
    return row_vectors <= 64          ? 3
        : row_vectors <= 1024         ? 2
        : wide || row_vectors <= 2048 ? 4
                                      : 8;
  }
  return !wide && row_vectors > 1024 ? 8 : wide && row_vectors <= 160 ? 5 : 4;
}

// NVIDIA's GPUs: as few SIMD-groups per row as registers allow, since sums
// across SIMD-groups cost more than a thread's own; and no vector of a
// SIMD-group past the row's end, if possible.
Geometry few_simds(RowKernel kernel, int length, int width, int forced) {
  bool backward = is_backward(kernel);
  int row_vectors = ceil_div(length, width);
  int in_one = ceil_div(row_vectors, Geometry::kSimdSize);
  int vectors =
      forced > 0 ? forced : max_cuda_vectors(backward, width, row_vectors);
  if (in_one <= vectors) {
    return forced > 0
        ? in_lanes(width, row_vectors, forced)
        : *in_simd(kernel, width, row_vectors, vectors, Backend::Cuda);
  }
  auto slots = [&](int v) { return ceil_div(in_one, v) * v; };
  // Fewer vectors per thread pay if they leave an eighth fewer past the end.
  bool divides = row_vectors % Geometry::kSimdSize == 0;
  for (int v = vectors - 1; forced == 0 && v > (divides ? 0 : 1); --v) {
    bool pays = divides ? slots(v) < slots(vectors)
                        : 8 * slots(v) <= 7 * slots(vectors);
    if (is_built(kernel, width, v, Backend::Cuda) && pays &&
        ceil_div(in_one, v) <= Geometry::kMaxSimds) {
      vectors = v;
    }
  }
  return in_simds(width, in_one, vectors, Geometry::kMaxSimds);
}

std::atomic<int> forced_vectors[2] = {0, 0}; // forward, backward

} // namespace

Geometry
geometry_for(RowKernel kernel, int length, int item_size, Backend backend) {
  int width = width_for(length, item_size);
  if (backend == Backend::Cuda) {
    return few_simds(
        kernel, length, width, forced_vectors[is_backward(kernel)]);
  }
  return few_vectors(kernel, length, width);
}

Geometry in_chunks(const Geometry& held) {
  constexpr int kMaxVectors = 4;
  int vectors = std::min(held.vectors, kMaxVectors);
  return {held.width, vectors, Geometry::kMaxSimds, /* looped= */ true};
}

bool is_built(RowKernel kernel, const Geometry& geometry, Backend backend) {
  return instance_of(kernel, geometry, backend);
}

int max_threads_of(RowKernel kernel, Geometry geometry, Backend backend) {
  // Without one the launch says which kernel there is not.
  auto* instance = instance_of(kernel, geometry, backend);
  return instance ? instance->threads : geometry.group_size();
}

std::optional<Geometry>
common_geometry(const Geometry& a, const Geometry& b, Backend backend) {
  Geometry both{
      a.width,
      std::max(a.vectors, b.vectors),
      std::max(a.simds, b.simds),
      /* looped= */ false};
  if (a.width != b.width || a.looped || b.looped ||
      !is_built(RowKernel::Forward, both, backend)) {
    return std::nullopt;
  }
  return both;
}

void set_vectors(bool backward, int vectors) {
  forced_vectors[backward] = vectors;
}

namespace {

std::atomic<bool> tiles_anywhere = false;

} // namespace

bool multiplies_by_tiles(mx::Stream stream) {
  return device_limits(stream).matrix_units || tiles_anywhere;
}

void set_tiles_anywhere(bool anywhere) {
  tiles_anywhere = anywhere;
}

} // namespace mlx_norms
