// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/common/axes.h"
#include "csrc/common/backend.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/channels/geometry.h"
#include "csrc/norm/persistent_loops.h"
#include "csrc/norm/view.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

using kernels::kOneAxis, kernels::kSize0, kernels::kSize1, kernels::kStep,
    kernels::kStride0, kernels::kVectors;

constexpr int kForwardVectors = 8;
constexpr int kBackwardVectors = 5;

// Metal's threads have too few registers for eight columns, but for the
// statistics of an rms norm.
bool few_registers(mx::Stream stream, bool rms_statistics) {
  return backend_of(stream) == Backend::Metal && !rms_statistics;
}

bool is_aligned(int64_t elements, const mx::array& a, int width) {
  auto bytes = std::min<int64_t>(16, width * a.itemsize());
  return elements * a.itemsize() % bytes == 0;
}

// An array as [outer, channels, inner]: a layout with the outer axes as its row
// axes and the channels' stride as its step. Null: not readable in place.
std::optional<RowOperand>
channels_in_place(const mx::array& a, int axis, int width) {
  int channels_axis = a.ndim() + axis;
  Axes outer, inner;
  for (int i = 0; i < static_cast<int>(a.ndim()); ++i) {
    if (i != channels_axis) {
      append(i < channels_axis ? outer : inner, {a.shape(i), {a.strides()[i]}});
    }
  }
  bool adjoin =
      inner.empty() || (inner.size() == 1 && inner[0].strides[0] == 1);
  auto step = a.shape(channels_axis) == 1 ? 0 : a.strides()[channels_axis];
  if (!adjoin || outer.size() > 3 || !fits_int32(step)) {
    return std::nullopt;
  }
  RowOperand operand{&a, float_type(a.dtype()), {}};
  auto& layout = operand.layout.emplace();
  layout[kStep] = step;
  layout[kSize0] = layout[kSize1] = 1;
  bool aligned =
      a.offset() % std::min<int64_t>(16, width * a.itemsize()) == 0 &&
      is_aligned(step, a, width);
  for (size_t i = 0; i < outer.size(); ++i) {
    const auto& axis_of = outer[outer.size() - 1 - i];
    auto stride = axis_of.strides[0];
    if (!fits_int32(axis_of.size) || !fits_int32(stride)) {
      return std::nullopt;
    }
    if (i < 2) {
      layout[kSize0 + i] = axis_of.size;
    }
    layout[kStride0 + i] = stride;
    aligned = aligned && is_aligned(stride, a, width);
  }
  operand.flags |= aligned && width > 1 ? kVectors : 0;
  operand.flags |= outer.size() > 1 ? 0 : kOneAxis;
  return operand;
}

// A copy is made of what is strided within its channels.
RowOperand
read_channels(const mx::array& a, int axis, int width, LaunchPlan& plan) {
  if (auto operand = channels_in_place(a, axis, width)) {
    return *operand;
  }
  auto operand = channels_in_place(make_dense(a, plan), axis, width);
  if (!operand) {
    throw std::runtime_error(
        "[mlx_norms] A GPU kernel takes channels and samples of at most 2^31 - "
        "1 elements.");
  }
  return *operand;
}

int32_t channel_flags(const mx::array& a, int width) {
  bool aligned = a.offset() % std::min<int64_t>(16, width * a.itemsize()) == 0;
  return float_type(a.dtype()) | (aligned && width > 1 ? kVectors : 0);
}

int32_t step_of(const mx::array& parameter) {
  return parameter.size() == 1 ? 1 : parameter.strides(0);
}

// The number of vectors of columns.
uint32_t count_places(const mx::array& x, int channels, int width) {
  auto columns = static_cast<int64_t>(x.size()) / channels;
  if (columns > kInt32Max) {
    throw std::runtime_error(
        "[mlx_norms] A GPU kernel normalizes at most 2^31 - 1 columns at once.");
  }
  return columns / width;
}

// What both kernels need.
template <typename K>
void bind_channels(
    Launch& launch,
    const NormSpec& spec,
    const ChannelGeometry& geometry,
    int channels,
    int64_t inner,
    uint32_t places) {
  launch.set(K::center, spec.center);
  launch.set(K::eps_bounds, spec.eps_bounds);
  launch.set(K::looped, geometry.looped);
  launch.set(K::column_lanes, geometry.lanes);
  launch.set(K::column_simds, geometry.simds);
  launch.set(K::column_count, geometry.count);
  launch.set(K::column_full, geometry.full);
  launch.set(K::columns_whole, geometry.whole);
  launch.set(K::has_weight, spec.has(kWeight));
  launch.set(K::has_weight_offset, spec.weight_offset != 0.0f);
  launch.set(K::channels, channels);
  launch.set(K::inner, static_cast<uint32_t>(inner));
  launch.set(K::places, places);
  launch.set(K::eps, spec.eps);
  launch.set(K::weight_offset, spec.weight_offset);
  launch.group[0] = Geometry::kSimdSize * geometry.simds;
}

} // namespace

LaunchPlan plan_channels(
    const NormSpec& spec,
    const NormInputs& in,
    const array& out,
    mx::Stream stream) {
  using K = kernels::channel_norm;
  LaunchPlan plan(stream);
  const auto &given = in.x(), *weight = in[kWeight], *bias = in[kBias];
  int axis = spec.axis;
  if (out.size() == 0) {
    return plan;
  }
  View view(spec, given);
  int channels = view.a;
  auto inner = view.kept;
  ChannelGeometry geometry(
      channels,
      inner,
      given.itemsize(),
      kForwardVectors,
      few_registers(stream, !spec.center));
  auto places = count_places(given, channels, geometry.width);
  auto x = read_channels(given, axis, geometry.width, plan);

  auto& launch =
      plan.launch({"channel_norm", geometry.width, geometry.vectors});
  bind_channels<K>(launch, spec, geometry, channels, inner, places);
  launch.set(K::has_bias, spec.has(kBias));
  launch.set(K::weight_flags, weight ? float_type(weight->dtype()) : 0);
  launch.set(K::bias_flags, bias ? float_type(bias->dtype()) : 0);
  launch.set(K::channels_round_early, spec.rounding == Rounding::Early);
  launch.set(K::activation, static_cast<int32_t>(spec.activation));
  bind_rows(launch, K::x, x);
  launch.set(K::channels_normalized_flags, channel_flags(out, geometry.width));
  launch.set(K::weight_step, weight ? step_of(*weight) : 0);
  launch.set(K::bias_step, bias ? step_of(*bias) : 0);
  if (weight) {
    launch.set(K::weight, *weight);
  }
  if (bias) {
    launch.set(K::bias, *bias);
  }
  launch.set(K::normalized, out);
  launch.groups[0] = ceil_div<uint32_t>(places, geometry.lanes);
  launch.threads_per_core = geometry.held > 20 ? 512 : 1024;
  return plan;
}

LaunchPlan plan_channels_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) {
  using K = kernels::channel_norm_vjp;
  constexpr uint32_t kMaxIterations = 32; // they are added up one by one
  LaunchPlan plan(stream);
  const auto& norm = op.norm;
  int axis = norm.axis;
  NormInputs in(norm.operands, inputs.data());
  const auto &given = in.x(), *weight = in[kWeight];
  const auto& of_result = *in[kCotangent];
  auto gradient = [&](Operand operand) {
    return op.wanted.find(operand, outputs.data());
  };
  auto* input = gradient(kX);
  auto* weight_gradient = gradient(kWeight);
  auto* bias_gradient = gradient(kBias);
  View view(norm, given);
  int channels = view.a;
  auto inner = view.kept;
  if (channels == 0) {
    return plan;
  }
  // Eight columns of a thread are of 16-bit values in both.
  auto item_size = std::max(given.itemsize(), of_result.itemsize());
  ChannelGeometry geometry(
      channels,
      inner,
      item_size,
      kBackwardVectors,
      few_registers(stream, false));
  auto places = count_places(given, channels, geometry.width);
  auto blocks = ceil_div<uint32_t>(places, geometry.lanes);
  auto at_once =
      static_cast<uint32_t>(device_limits(stream).loops(geometry.simds));
  bool sums = weight_gradient || bias_gradient;
  // Fewer partial sums, unless that would leave cores without threadgroups.
  uint32_t min = blocks > at_once / 2 ? 2 : 1;
  auto iterations =
      sums ? std::clamp(ceil_div(blocks, at_once), min, kMaxIterations) : 1;
  auto groups = ceil_div(blocks, iterations);
  auto partials = [&](const mx::array* gradient) -> std::optional<mx::array> {
    if (!gradient) {
      return std::nullopt;
    }
    return plan.temporary({std::max<int>(groups, 1), channels}, mx::float32);
  };
  auto weight_partials = partials(weight_gradient);
  auto bias_partials = partials(bias_gradient);

  if (places > 0) {
    auto s = read_channels(given, axis, geometry.width, plan);
    auto cotangent = read_channels(of_result, axis, geometry.width, plan);
    auto& launch =
        plan.launch({"channel_norm_vjp", geometry.width, geometry.vectors});
    bind_channels<K>(launch, norm, geometry, channels, inner, places);
    launch.set(K::weight_flags, weight ? float_type(weight->dtype()) : 0);
    launch.set(K::channels_want_input, input != nullptr);
    launch.set(K::channels_want_weight, weight_gradient != nullptr);
    launch.set(K::channels_want_bias, bias_gradient != nullptr);
    bind_rows(launch, K::s, s);
    bind_rows(launch, K::cotangent, cotangent);
    launch.set(
        K::channels_input_flags,
        input ? channel_flags(*input, geometry.width) : 0);
    launch.set(K::weight_step, weight ? step_of(*weight) : 0);
    if (weight) {
      launch.set(K::weight, *weight);
    }
    if (input) {
      launch.set(K::input_gradient, *input);
    }
    if (weight_partials) {
      launch.set(K::weight_partials, *weight_partials);
    }
    if (bias_partials) {
      launch.set(K::bias_partials, *bias_partials);
    }
    launch.set(K::iterations, iterations);
    launch.groups[0] = groups;
    launch.threads_per_core = norm.center || geometry.held > 16 ? 512 : 768;
  }
  if (sums) {
    plan.launches.push_back(sum_partials(
        1,
        groups,
        channels,
        weight_partials,
        weight_gradient,
        bias_partials,
        bias_gradient));
  }
  return plan;
}

} // namespace mlx_norms
