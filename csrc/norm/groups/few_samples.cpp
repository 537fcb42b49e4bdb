// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/self_check.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/view.h"

namespace mlx_norms {

namespace {

// The sizes of a sample on which kernels depend.
struct KernelSizes {
  int channels;
  int positions;
  int groups;

  KernelSizes(int channels, int positions, int groups)
      : channels(channels),
        positions(positions),
        groups(groups) {}

  explicit KernelSizes(const View& view)
      : KernelSizes(view.channels(), view.a, view.kept) {}

  int of_group() const {
    return channels / groups;
  }
  int64_t size() const {
    return int64_t{channels} * positions;
  }
  int alignment() const {
    return channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : 1;
  }
};

// These sizes, or one position more if there is an odd number of them.
template <typename F>
KernelSizes with_two_axes(const KernelSizes& sizes, F kernels) {
  auto even = sizes;
  even.positions += even.positions % 2;
  return kernels(even) == kernels(sizes) ? even : sizes;
}

// Few that have these sizes' kernels, which kernels(sizes) tells; else these.
// The last chunk of so many positions has one to three more for each thread
// than those that are taken together.
template <typename F>
KernelSizes few_of(const KernelSizes& sizes, F kernels) {
  auto wanted = kernels(sizes);
  int more = sizes.alignment() == 8 ? 8 : sizes.alignment() == 4 ? 4 : 2;
  for (int most = 8; most <= 2048; most *= 2) {
    int channels = most + more;
    for (int positions : {1240, 156, 62}) {
      for (int groups : {2, channels, channels / 2, 1}) {
        KernelSizes few(channels, positions, groups);
        if (few.size() < sizes.size() && kernels(few) == wanted) {
          return few;
        }
      }
    }
  }
  return with_two_axes(sizes, kernels);
}

// As spec, of such a sample.
NormSpec like(const NormSpec& spec, const KernelSizes& sizes) {
  auto few = spec;
  few.eps = 1e-5f;
  few.groups = spec.groups == 0 && sizes.of_group() == 1 ? 0 : sizes.groups;
  few.sample_axes = 1;
  return few;
}

// With two axes of positions, if they can be.
mx::Shape shape_of(const KernelSizes& sizes) {
  int inner = sizes.positions % 2 == 0 ? sizes.positions / 2 : sizes.positions;
  return {2, sizes.positions / inner, inner, sizes.channels};
}

// The norm's inputs.
Arrays samples_of(
    const NormSpec& spec,
    const mx::Shape& x,
    const Arrays& inputs,
    mx::Stream s) {
  Arrays few;
  for (auto operand : spec.operands) {
    int i = few.size();
    auto values = self_check::values(
        operand == kX ? x : mx::Shape{x.back()},
        inputs[i].dtype(),
        17 * i + 1,
        false,
        s);
    few.push_back(operand == kVariance ? mx::square(values, s) : values);
  }
  return few;
}

// Equal numbers: the same kernels.
std::vector<int64_t> kernels_of(
    const NormSpec& spec,
    const KernelSizes& sizes,
    const array& x,
    mx::Stream s) {
  auto [channels, positions, groups] = sizes;
  std::vector<int64_t> numbers{sizes.alignment()};
  if (spec.has_running_statistics()) {
    return numbers;
  }
  auto held = HeldGeometry::choose(
      channels, positions, groups, spec.strided, x.itemsize(), backend_of(s));
  if (held) {
    numbers.insert(numbers.end(), {held->width, held->vectors, held->differ});
    return numbers;
  }
  SampleGeometry sample(channels, positions, x.itemsize());
  StatisticsGeometry statistics(sample, groups, spec.strided);
  numbers.insert(numbers.end(), {statistics.simds, std::min(sample.chunks, 2)});
  return numbers;
}

// As many of a sample's groups as one threadgroup holds, if it does.
KernelSizes few_of(const NormSpec& spec, const array& x, mx::Stream s) {
  KernelSizes sizes(View(spec, x));
  auto kernels = [&](const KernelSizes& of) {
    return kernels_of(spec, of, x, s);
  };
  auto held = held_geometry(spec, x, s);
  if (!held) {
    return few_of(sizes, kernels);
  }
  return with_two_axes(
      {held->lanes() * held->width, held->positions, held->groups}, kernels);
}

// As those of the norm, of its gradients.
std::vector<int64_t>
kernels_of(const NormVJP& op, const KernelSizes& sizes, const array& x) {
  SampleGeometry sample(sizes.channels, sizes.positions, x.itemsize());
  SumsGeometry sums(sample, sizes.groups);
  if (sums_at_once(op, sample.chunks, sizes.of_group())) {
    return {sizes.alignment()};
  }
  return {
      sizes.alignment(),
      sums.threads,
      sums.group_is_channel,
      std::min(sample.chunks, 2)};
}

KernelSizes few_of(const NormVJP& op, const array& x) {
  return few_of(KernelSizes(View(op.norm, x)), [&](const KernelSizes& of) {
    return kernels_of(op, of, x);
  });
}

} // namespace

void append_samples(
    const NormSpec& spec,
    const array& x,
    mx::Stream s,
    std::vector<int64_t>& numbers) {
  auto kernels = kernels_of(spec, KernelSizes(View(spec, x)), x, s);
  numbers.insert(numbers.end(), kernels.begin(), kernels.end());
}

NormSpec few_groups(const NormSpec& spec, const array& x, mx::Stream s) {
  return like(spec, few_of(spec, x, s));
}

Arrays few_samples(const NormSpec& spec, const Arrays& inputs, mx::Stream s) {
  auto shape = shape_of(few_of(spec, inputs[0], s));
  return samples_of(spec, shape, inputs, s);
}

void append_samples(
    const NormVJP& op,
    const array& x,
    std::vector<int64_t>& numbers) {
  auto kernels = kernels_of(op, KernelSizes(View(op.norm, x)), x);
  numbers.insert(numbers.end(), kernels.begin(), kernels.end());
}

NormSpec few_groups(const NormVJP& op, const array& x) {
  return like(op.norm, few_of(op, x));
}

Arrays few_samples(const NormVJP& op, const Arrays& inputs, mx::Stream s) {
  auto sizes = few_of(op, inputs[0]);
  auto norm = like(op.norm, sizes);
  norm.operands = norm.operands.without({kCotangent});
  if (!norm.has_running_statistics()) {
    norm.operands = norm.operands.without({kMean, kRest, kVariance});
  }
  auto arrays = samples_of(norm, shape_of(sizes), inputs, s);
  auto x = arrays[0];
  auto outputs = fallback_of_inputs(norm, x.dtype(), arrays, s);
  arrays.insert(arrays.end(), outputs.begin() + 1, outputs.end());
  arrays.push_back(
      self_check::values(
          x.shape(), inputs.back().dtype(), 99, /* large= */ false, s));
  return arrays;
}

} // namespace mlx_norms
