// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <optional>

#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/view.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

// More loads under way at once than by the default, and no spills.
constexpr int kForwardThreads = 768;

// The sizes of a call.
struct Sizes {
  int samples;
  int groups;
  SampleGeometry geometry;

  Sizes(const NormSpec& spec, const mx::array& x)
      : Sizes(View(spec, x), x.itemsize()) {}

 private:
  Sizes(const View& view, int item_size)
      : samples(view.outer),
        groups(view.kept),
        geometry(view.channels(), view.a, item_size) {
    auto threadgroups = int64_t{samples} * geometry.chunks * geometry.blocks;
    if (threadgroups > kInt32Max || int64_t{samples} * groups > kInt32Max) {
      throw std::runtime_error(
          "[mlx_norms] A GPU kernel normalizes at most 2^31 - 1 groups at "
          "once.");
    }
  }
};

using Parameter = std::optional<RowOperand>;

// What is read for each channel.
struct ChannelParameters {
  Parameter weight, bias, mean, variance;
  const mx::array* rest; // of the mean; null: mean and variance are given

  // statistics: {mean, rest, variance}, or null
  ChannelParameters(
      const NormInputs& in,
      const mx::array* statistics,
      int width,
      LaunchPlan& plan)
      : weight(read_optional(in[kWeight], width, plan)),
        bias(read_optional(in[kBias], width, plan)),
        rest(statistics ? statistics + 1 : nullptr) {
    auto of = [&](const mx::array* given, int i) {
      return statistics ? Parameter({&statistics[i], kernels::kFloat32, {}})
                        : read_optional(given, width, plan);
    };
    mean = of(in[kMean], 0);
    variance = of(in[kVariance], 2);
  }
};

// What all kernels of a chunk of positions take.
template <typename K>
Launch& launch_chunks(
    LaunchPlan& plan,
    const char* family,
    int samples,
    const SampleGeometry& geometry,
    const RowOperand& x) {
  auto& launch = plan.launch({family, geometry.width});
  bool whole = geometry.channels % geometry.width == 0;
  launch.set(K::whole, whole);
  launch.set(K::no_tail, whole);
  launch.set(K::scattered, false);
  launch.set( // in the order of kernels/group_norm/channel_threads.h
      K::spread,
      {geometry.channels,
       geometry.lanes,
       geometry.rows,
       geometry.steps,
       geometry.blocks,
       geometry.chunks});
  launch.set(K::positions, geometry.positions);
  bind_rows(launch, K::x, x);
  launch.groups[0] = samples * geometry.chunks * geometry.blocks;
  launch.group[0] = geometry.lanes;
  launch.group[1] = geometry.rows;
  return launch;
}

// The same for a launch without sums. Where the chunks are fewer threadgroups
// than run at once, it has smaller ones.
template <typename K>
Launch& launch_elements(
    LaunchPlan& plan,
    const char* family,
    const Sizes& sizes,
    const RowOperand& x) {
  int at_once = device_limits(plan.stream).loops(SampleGeometry::kThreads / 32);
  auto geometry = sizes.geometry.without_sums(sizes.samples, at_once);
  return launch_chunks<K>(plan, family, sizes.samples, geometry, x);
}

template <typename K>
void bind_parameters(
    Launch& launch,
    const NormSpec& spec,
    const Sizes& sizes,
    const ChannelParameters& of) {
  launch.set(K::group_strided, spec.strided);
  launch.set(K::groups, sizes.groups);
  launch.set(K::group_has_rest, of.rest != nullptr);
  bind_rows(launch, K::mean, of.mean);
  bind_rows(launch, K::variance, of.variance);
  if (of.rest) {
    launch.set(K::rest, *of.rest);
  }
  bind_rows(launch, K::weight, of.weight);
  bind_rows(launch, K::bias, of.bias);
  launch.set(K::activation, static_cast<int>(spec.activation));
  launch.set(K::eps, spec.eps);
}

std::optional<HeldGeometry> held_geometry(
    const NormSpec& spec,
    const Sizes& sizes,
    const mx::array& x,
    mx::Stream stream) {
  if (spec.has_running_statistics()) {
    return std::nullopt;
  }
  return HeldGeometry::choose(
      sizes.geometry.channels,
      sizes.geometry.positions,
      sizes.groups,
      spec.strided,
      x.itemsize(),
      backend_of(stream));
}

// The norm in one launch.
void launch_held(
    LaunchPlan& plan,
    const NormSpec& spec,
    const Sizes& sizes,
    const HeldGeometry& geometry,
    const NormInputs& in,
    const Arrays& outputs) {
  using K = kernels::held_groups;
  int blocks = sizes.groups / geometry.groups;
  auto x = read_rows(in.x(), geometry.width, plan);
  auto weight = read_optional(in[kWeight], geometry.width, plan);
  auto bias = read_optional(in[kBias], geometry.width, plan);
  auto& launch = plan.launch({"held_groups", geometry.width, geometry.vectors});
  launch.set(K::whole, true);
  launch.set(K::no_tail, true);
  launch.set(K::scattered, false);
  launch.set(K::group_strided, spec.strided);
  launch.set(K::groups_differ, geometry.differ);
  launch.set(K::activation, static_cast<int>(spec.activation));
  bind_rows(launch, K::y, &outputs[0], geometry.width);
  bind_rows(launch, K::x, x);
  bind_rows(launch, K::weight, weight);
  bind_rows(launch, K::bias, bias);
  launch.set(K::mean, outputs[1]);
  launch.set(K::rest, outputs[2]);
  launch.set(K::variance, outputs[3]);
  launch.set(K::channels, sizes.geometry.channels);
  launch.set(K::positions, sizes.geometry.positions);
  launch.set(K::groups, sizes.groups);
  launch.set(K::adjoining, geometry.adjoining);
  launch.set(K::across, geometry.across);
  launch.set(K::rows, geometry.rows);
  launch.set(K::groups_held, geometry.groups);
  launch.set(K::blocks, blocks);
  launch.set(K::of_group, sizes.geometry.channels / sizes.groups);
  launch.set(K::eps, spec.eps);
  launch.group[0] = geometry.threads();
  launch.groups[0] = sizes.samples * blocks;
  int words = geometry.vectors * geometry.width * in.x().itemsize() / 4;
  // As many as without spills: statistics of each channel and some activations
  // take more registers.
  bool few_registers = !geometry.differ &&
      (spec.activation == Activation::None ||
       spec.activation == Activation::Silu);
  launch.threads_per_core = words > 32 ? 512
      : words > 16                     ? 768
      : few_registers                  ? 1280
                                       : 1024;
}

// Partial statistics: of each chunk and channel.
struct PartialStatistics {
  const mx::array& highs;
  const mx::array& lows;
  const mx::array& squares;

  PartialStatistics(const Sizes& sizes, LaunchPlan& plan)
      : highs(of(sizes, plan)),
        lows(of(sizes, plan)),
        squares(of(sizes, plan)) {}

 private:
  static const mx::array& of(const Sizes& sizes, LaunchPlan& plan) {
    const auto& sample = sizes.geometry;
    return plan.temporary(
        {sizes.samples, std::max(sample.chunks, 1), sample.channels},
        mx::float32);
  }
};

// Merges the chunks' statistics. Without chunks they are NaN.
void launch_statistics(
    LaunchPlan& plan,
    const NormSpec& spec,
    const Sizes& sizes,
    const PartialStatistics& partials,
    const Arrays& outputs) {
  using K = kernels::group_statistics;
  const auto& sample = sizes.geometry;
  StatisticsGeometry geometry(sample, sizes.groups, spec.strided);
  auto& launch = plan.launch({"group_statistics", geometry.simds});
  launch.set(K::group_strided, spec.strided);
  launch.set(K::highs, partials.highs);
  launch.set(K::lows, partials.lows);
  launch.set(K::squares, partials.squares);
  launch.set(K::mean, outputs[1]);
  launch.set(K::rest, outputs[2]);
  launch.set(K::variance, outputs[3]);
  launch.set(K::channels, sample.channels);
  launch.set(K::positions, sample.positions);
  launch.set(K::groups, sizes.groups);
  launch.set(K::chunk_size, sample.chunk_size());
  launch.set(K::across, geometry.across);
  launch.set(K::blocks, geometry.blocks);
  launch.groups[0] = sizes.samples * geometry.blocks;
  launch.group[0] = 32 * geometry.simds;
}

// Sums for the gradients of the parameters: over a chunk each, or over all.
struct ParameterSums {
  const mx::array& bias;
  const mx::array& weight;
};

// The sums over all chunks and, unless null, the means that x's gradient takes.
void launch_sums(
    LaunchPlan& plan,
    const NormSpec& spec,
    const Sizes& sizes,
    const Parameter& weight,
    const ParameterSums& partials,
    const ParameterSums& sums,
    const mx::array* means) {
  using K = kernels::group_gradient_sums;
  const auto& sample = sizes.geometry;
  SumsGeometry geometry(sample, sizes.groups);
  auto& launch = plan.launch({"group_gradient_sums", geometry.threads});
  launch.set(K::scattered, false);
  launch.set(K::group_strided, spec.strided);
  bind_rows(launch, K::weight, weight);
  launch.set(K::group_means_wanted, means != nullptr);
  launch.set(K::group_is_channel, geometry.group_is_channel);
  launch.set(K::bias_partials, partials.bias);
  launch.set(K::weight_partials, partials.weight);
  launch.set(K::bias_sums, sums.bias);
  launch.set(K::weight_sums, sums.weight);
  launch.set(K::group_sums_type, float_type(sums.bias.dtype()));
  if (means) {
    launch.set(K::group_means, *means);
  }
  launch.set(K::channels, sample.channels);
  launch.set(K::positions, sample.positions);
  launch.set(K::groups, sizes.groups);
  launch.set(K::chunks, sample.chunks);
  launch.set(K::width, geometry.width);
  launch.set(K::samples, sizes.samples);
  launch.set(K::blocks, geometry.blocks);
  launch.groups[0] = sizes.samples * geometry.blocks;
  launch.group[0] = geometry.threads;
}

} // namespace

std::optional<HeldGeometry>
held_geometry(const NormSpec& spec, const mx::array& x, mx::Stream stream) {
  return held_geometry(spec, Sizes(spec, x), x, stream);
}

LaunchPlan plan_groups(
    const NormSpec& spec,
    const NormInputs& in,
    const Arrays& outputs,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  // Nobody reads the statistics of groups without channels.
  bool none = outputs.back().size() == 0 || in.x().shape(-1) == 0;
  if (outputs[0].size() == 0 && none) {
    return plan;
  }
  Sizes sizes(spec, in.x());
  if (in.x().size() == 0) {
    launch_statistics(plan, spec, sizes, {sizes, plan}, outputs);
    return plan;
  }
  const auto& geometry = sizes.geometry;
  if (auto held = held_geometry(spec, sizes, in.x(), stream)) {
    launch_held(plan, spec, sizes, *held, in, outputs);
    return plan;
  }
  auto x = read_rows(in.x(), geometry.width, plan);
  if (!spec.has_running_statistics()) {
    PartialStatistics partials(sizes, plan);
    {
      using K = kernels::group_partials;
      auto& launch =
          launch_chunks<K>(plan, "group_partials", sizes.samples, geometry, x);
      launch.threads_per_core = kForwardThreads;
      launch.set(K::highs, partials.highs);
      launch.set(K::lows, partials.lows);
      launch.set(K::squares, partials.squares);
    }
    launch_statistics(plan, spec, sizes, partials, outputs);
  }
  ChannelParameters parameters(
      in,
      spec.has_running_statistics() ? nullptr : &outputs[1],
      geometry.width,
      plan);
  using K = kernels::group_normalize;
  auto& launch = launch_elements<K>(plan, "group_normalize", sizes, x);
  launch.threads_per_core = kForwardThreads;
  bind_parameters<K>(launch, spec, sizes, parameters);
  bind_rows(launch, K::y, &outputs[0], geometry.width);
  return plan;
}

LaunchPlan plan_groups_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  const auto& spec = op.norm;
  NormInputs in(spec.operands, inputs.data());
  auto gradient = [&](Operand operand) {
    return op.wanted.find(operand, outputs.data());
  };
  auto* input = gradient(kX);
  bool wants_sums = gradient(kBias);
  if (in.x().size() == 0 && outputs.back().size() == 0) {
    return plan;
  }
  Sizes sizes(spec, in.x());
  if (in.x().size() == 0) { // the sums, over no chunks
    const auto& none = plan.temporary({1}, mx::float32);
    ParameterSums sums{*gradient(kBias), *gradient(kWeight)};
    launch_sums(plan, spec, sizes, {}, {none, none}, sums, nullptr);
    return plan;
  }
  const auto& geometry = sizes.geometry;
  const auto& cotangent = *in[kCotangent];
  auto* statistics = spec.has_running_statistics() ? nullptr : in[kMean];
  bool of_sums = takes_means(op);
  bool at_once = input && wants_sums && spec.has_running_statistics();
  auto x = read_rows(in.x(), geometry.width, plan);
  auto g = read_rows(cotangent, geometry.width, plan);
  if (spec.activation == Activation::None) {
    in[kBias] = nullptr; // only an activation's slope depends on it
  }
  ChannelParameters parameters(in, statistics, geometry.width, plan);
  const mx::array* group_means = nullptr;
  if (wants_sums || of_sums) {
    int of_group = geometry.channels / sizes.groups;
    // One chunk's partial sums are those over all chunks.
    bool one_chunk = sums_at_once(op, geometry.chunks, of_group);
    auto sums = [&](Operand operand, bool partial) -> const mx::array& {
      if (wants_sums && partial == one_chunk) {
        return *gradient(operand);
      }
      mx::Shape shape{sizes.samples, geometry.channels};
      if (partial) {
        shape.insert(shape.begin() + 1, geometry.chunks);
      }
      return plan.temporary(shape, mx::float32);
    };
    ParameterSums partials{sums(kBias, true), sums(kWeight, true)};
    if (of_sums) {
      group_means =
          &plan.temporary({2, sizes.samples, sizes.groups}, mx::float32);
    }
    {
      using K = kernels::group_gradient_partials;
      auto& launch = launch_chunks<K>(
          plan, "group_gradient_partials", sizes.samples, geometry, x);
      bind_parameters<K>(launch, spec, sizes, parameters);
      bind_rows(launch, K::cotangent, g);
      launch.set(K::bias_partials, partials.bias);
      launch.set(K::weight_partials, partials.weight);
      launch.set(K::group_sums_type, float_type(partials.bias.dtype()));
      bool means = one_chunk && of_sums;
      launch.set(K::group_means_wanted, means);
      if (means) {
        launch.set(K::group_means, *group_means);
      }
      launch.set(K::samples, sizes.samples);
      launch.set(K::group_writes_input, at_once);
      bind_rows(launch, K::gradient, at_once ? input : nullptr, geometry.width);
    }
    if (!one_chunk) {
      ParameterSums whole{sums(kBias, false), sums(kWeight, false)};
      launch_sums(
          plan, spec, sizes, parameters.weight, partials, whole, group_means);
    }
  }
  if (input && !at_once) {
    using K = kernels::group_input_gradient;
    auto& launch = launch_elements<K>(plan, "group_input_gradient", sizes, x);
    bind_parameters<K>(launch, spec, sizes, parameters);
    launch.set(K::group_of_sums, of_sums);
    bind_rows(launch, K::cotangent, g);
    if (of_sums) {
      launch.set(K::group_means, *group_means);
    }
    bind_rows(launch, K::gradient, input, geometry.width);
    launch.set(K::samples, sizes.samples);
  }
  return plan;
}

} // namespace mlx_norms
