// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/plan.h"

namespace mlx_norms {

namespace {

// Function constants and buffers of kernels/norm/vjp/norm_vjp.metal.
namespace rows_kernel {
enum Constant {
  kSimdsPerRow = 0,
  kLooped = 1,
  kCentre = 2,
  kWhole = 3,
  kHasWeight = 4,
  kHasWeightOffset = 6,
  kWeightAccess = 7,
  kHasSumCotangent = 30,
  kClampedSum = 31,
  kWantInput = 32,
  kWantWeight = 33,
  kWantBias = 34,
  kKeepStatistics = 35,
  kStages = 36,
  kWeightHasSlots = 37,
  kCluster = 38,
  kSAccess = 40,
  kCotangentAccess = 41,
  kSumCotangentAccess = 42,
  kInputAccess = 43
};
enum Buffer {
  kS = 0,
  kWeight = 1,
  kCotangent = 2,
  kSumCotangent = 3,
  kInput = 4,
  kWeightPartials = 5,
  kBiasPartials = 6,
  kStatistics = 7,
  kRows = 12,
  kLength = 13,
  kHeads = 14,
  kRowsPerTeam = 15,
  kTeams = 16,
  kEps = 17,
  kWeightOffset = 18
};
constexpr int kLayouts = 8; // an input's layout stands so much after it
} // namespace rows_kernel

// Those of kernels/norm/vjp/parameter_gradients.metal.
namespace columns_kernel {
enum Constant {
  kWhole = 3,
  kSumsWeight = 50,
  kSumsBias = 51,
  kSAccess = 52,
  kCotangentAccess = 53
};
enum Buffer {
  kS = 0,
  kCotangent = 1,
  kStatistics = 2,
  kWeightPartials = 3,
  kBiasPartials = 4,
  kSLayout = 5,
  kCotangentLayout = 6,
  kRows = 7,
  kLength = 8,
  kHeads = 9,
  kRowsPerTeam = 10
};
constexpr int kGroupSize = 256;
} // namespace columns_kernel

namespace sum_kernel {
enum Constant {
  kSumsWeight = 50,
  kSumsBias = 51,
  kWeightGradientType = 54,
  kBiasGradientType = 55
};
enum Buffer {
  kWeightPartials = 0,
  kBiasPartials = 1,
  kWeightGradient = 2,
  kBiasGradient = 3,
  kCount = 4,
  kColumns = 5
};
constexpr int kColumnsPerGroup = 32;
constexpr int kGroupSize = 256;
} // namespace sum_kernel

Geometry geometry_of(const mx::array& s, mx::Stream stream) {
  return geometry_for(
      /* backward= */ true, s.shape(-1), s.itemsize(), backend_of(stream));
}

// Each team has enough rows that a row of partial sums is a small part of what
// it reads.
constexpr int kLeastRowsPerTeam = 16;
constexpr int kMostRowsPerTeam = 128; // they are added up one by one

// How rows are shared out among teams (kernels/norm/walk.h).
struct Walks {
  int heads;
  int rows_per_team;
  int teams;

  // `most` teams run at once.
  Walks(int rows, int heads, int most) : heads(heads) {
    int rows_of_head = rows / heads;
    most = std::max(most / heads, 1);
    rows_per_team = std::clamp(
        ceil_div(rows_of_head, most), kLeastRowsPerTeam, kMostRowsPerTeam);
    teams = heads * ceil_div(rows_of_head, rows_per_team);
  }
};

// How many threadgroups add up their partial sums before they write them, and
// the bytes of slots that each needs for that. The host takes longer over such
// a launch, so it must be large.
struct Cluster {
  static constexpr int64_t kLeastElements = 1 << 22;
  static constexpr int kMost = 2; // of four, fewer groups run at once

  int size = 1;
  int bytes = 0;

  Cluster(
      int64_t elements,
      const NormVJPSpec& spec,
      const Geometry& geometry,
      const Walks& walks,
      const DeviceLimits& limits) {
    int vectors = geometry.vectors * (spec.weight + spec.bias);
    int needed =
        vectors * geometry.width * int{sizeof(float)} * geometry.group_size();
    bool alone = elements < kLeastElements || vectors == 0 || geometry.looped ||
        geometry.simds == 1 || walks.heads > 1 ||
        walks.teams < limits.cores / 2 || needed > limits.slot_bytes;
    if (!alone && limits.cluster > 1) {
      size = std::min(limits.cluster, kMost);
      bytes = needed;
    }
  }
};

// What the launches have in common.
struct Backward {
  const NormVJPSpec& spec;
  Geometry geometry;
  Walks walks;
  Cluster cluster;
  int rows;
  int length;
  RowOperand s, cotangent;
  std::optional<mx::array> weight_partials, bias_partials, statistics;
};

// How many rows of each array have slots, and whether the weight's has: none
// where vectors cannot be fetched, or in looped rows.
struct Slots {
  int stages = 0;
  bool weight = false;
  int bytes = 0;

  Slots(
      const Backward& b,
      const std::optional<RowOperand>& of_weight,
      const std::optional<RowOperand>& sum_cotangent,
      int most_bytes) {
    constexpr int kMostStages = 2;
    int width = b.geometry.width;
    if (b.geometry.looped || b.length % width != 0 || !can_fetch(b.s, width) ||
        !can_fetch(b.cotangent, width) ||
        (sum_cotangent && !can_fetch(*sum_cotangent, width))) {
      return;
    }
    int row = 16 * b.geometry.vectors * b.geometry.group_size();
    int stage = row * (sum_cotangent ? 3 : 2);
    stages = std::min(most_bytes / stage, kMostStages);
    weight = stages > 0 && of_weight && can_fetch(*of_weight, width) &&
        stages * stage + row <= most_bytes;
    bytes = stages * stage + weight * row;
  }
};

// The gradient of the input; the partial sums too, unless columns take them.
Launch rows_launch(
    const Backward& b,
    const std::optional<RowOperand>& weight,
    const std::optional<RowOperand>& sum_cotangent,
    const mx::array* input,
    bool by_columns,
    int slot_bytes) {
  using namespace rows_kernel;
  const auto& norm = b.spec.norm;
  int width = b.geometry.width;
  Launch launch({"norm_vjp", width, b.geometry.vectors});
  launch.constant(kSimdsPerRow, b.geometry.simds);
  launch.constant(kLooped, b.geometry.looped);
  launch.constant(kCentre, norm.centre);
  launch.constant(kWhole, b.geometry.is_whole(b.length));
  launch.constant(kHasWeight, weight.has_value());
  launch.constant(kHasWeightOffset, norm.weight_offset != 0);
  launch.constant(kHasSumCotangent, sum_cotangent.has_value());
  launch.constant(kClampedSum, norm.clamp && b.s.array->dtype() == mx::float16);
  launch.constant(kWantInput, b.spec.input);
  launch.constant(kWantWeight, b.spec.weight && !by_columns);
  launch.constant(kWantBias, b.spec.bias && !by_columns);
  launch.constant(kKeepStatistics, b.statistics.has_value());
  Slots slots(b, weight, sum_cotangent, slot_bytes);
  launch.constant(kStages, slots.stages);
  launch.constant(kWeightHasSlots, slots.weight);
  launch.constant(kCluster, b.cluster.size);
  launch.slot_bytes = std::max(slots.bytes, b.cluster.bytes);

  auto read = [&](int buffer, int access_constant, const auto& rows) {
    bind(launch, buffer, buffer + kLayouts, access_constant, rows);
  };
  read(kS, kSAccess, std::optional(b.s));
  read(kWeight, kWeightAccess, weight);
  read(kCotangent, kCotangentAccess, std::optional(b.cotangent));
  read(kSumCotangent, kSumCotangentAccess, sum_cotangent);
  launch.constant(kInputAccess, input ? write_access(*input, width) : 0);
  if (input) {
    launch.output(kInput, *input);
  }
  if (b.weight_partials && !by_columns) {
    launch.output(kWeightPartials, *b.weight_partials);
  }
  if (b.bias_partials && !by_columns) {
    launch.output(kBiasPartials, *b.bias_partials);
  }
  if (b.statistics) {
    launch.output(kStatistics, *b.statistics);
  }
  launch.scalar(kRows, b.rows);
  launch.scalar(kLength, b.length);
  launch.scalar(kHeads, b.walks.heads);
  launch.scalar(kRowsPerTeam, b.walks.rows_per_team);
  launch.scalar(kTeams, b.walks.teams);
  launch.scalar(kEps, norm.eps);
  launch.scalar(kWeightOffset, norm.weight_offset);
  launch.cluster = b.cluster.size;
  launch.groups[0] = b.cluster.size *
      ceil_div(b.walks.teams, b.geometry.teams_per_group() * b.cluster.size);
  launch.group[0] = b.geometry.group_size();
  return launch;
}

// The partial sums of rows too long for registers.
Launch columns_launch(const Backward& b) {
  using namespace columns_kernel;
  int width = b.geometry.width;
  Launch launch({"parameter_gradients", width});
  launch.constant(kWhole, b.length % width == 0);
  launch.constant(kSumsWeight, b.spec.weight);
  launch.constant(kSumsBias, b.spec.bias);
  bind(launch, kS, kSLayout, kSAccess, b.s);
  bind(launch, kCotangent, kCotangentLayout, kCotangentAccess, b.cotangent);
  if (b.statistics) {
    launch.input(kStatistics, *b.statistics);
  }
  if (b.weight_partials) {
    launch.output(kWeightPartials, *b.weight_partials);
  }
  if (b.bias_partials) {
    launch.output(kBiasPartials, *b.bias_partials);
  }
  launch.scalar(kRows, b.rows);
  launch.scalar(kLength, b.length);
  launch.scalar(kHeads, b.walks.heads);
  launch.scalar(kRowsPerTeam, b.walks.rows_per_team);
  launch.groups[0] = ceil_div(ceil_div(b.length, width), kGroupSize);
  launch.groups[1] = b.walks.teams;
  launch.group[0] = kGroupSize;
  return launch;
}

// The gradients of the parameters: the sums of their rows of partial sums.
Launch sum_partials(
    int heads,
    int count, // of each head's
    int length,
    const std::optional<mx::array>& weight_partials,
    const mx::array* weight_gradient,
    const std::optional<mx::array>& bias_partials,
    const mx::array* bias_gradient) {
  using namespace sum_kernel;
  Launch launch({"sum_partials"});
  launch.constant(kSumsWeight, weight_gradient != nullptr);
  launch.constant(kSumsBias, bias_gradient != nullptr);
  auto type = [](const mx::array* a) { return a ? float_type(a->dtype()) : 0; };
  launch.constant(kWeightGradientType, type(weight_gradient));
  launch.constant(kBiasGradientType, type(bias_gradient));
  if (weight_gradient) {
    launch.input(kWeightPartials, *weight_partials);
    launch.output(kWeightGradient, *weight_gradient);
  }
  if (bias_gradient) {
    launch.input(kBiasPartials, *bias_partials);
    launch.output(kBiasGradient, *bias_gradient);
  }
  int columns = heads * length;
  launch.scalar(kCount, count);
  launch.scalar(kColumns, columns);
  launch.groups[0] = ceil_div(columns, kColumnsPerGroup);
  launch.groups[1] = (weight_gradient != nullptr) + (bias_gradient != nullptr);
  launch.group[0] = kGroupSize;
  return launch;
}

} // namespace

bool reads_rows_again(
    const NormVJPSpec& spec,
    const mx::array& s,
    mx::Stream stream) {
  return (spec.weight || spec.bias) && geometry_of(s, stream).looped;
}

LaunchPlan plan_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  NormVJPInputs in(spec.norm, inputs.data());
  auto next = outputs.begin();
  auto* input = spec.input ? &*next++ : nullptr;
  auto* weight_gradient = spec.weight ? &*next++ : nullptr;
  auto* bias_gradient = spec.bias ? &*next++ : nullptr;

  int length = in.s.shape(-1);
  int rows = row_count(in.s);
  int heads = in.weight && in.weight->ndim() == 2 ? in.weight->shape(0) : 1;
  if (length == 0 || heads == 0) {
    return plan;
  }
  auto geometry = geometry_of(in.s, stream);
  int width = geometry.width;
  auto limits = device_limits(stream);
  Walks walks(rows, heads, limits.teams(geometry.simds));
  Cluster cluster(in.s.size(), spec, geometry, walks, limits);
  int rows_of_partials = ceil_div(walks.teams, cluster.size);
  bool by_columns = reads_rows_again(spec, in.s, stream);

  auto partials = [&](bool wanted) {
    return wanted ? std::optional(plan.temporary(
                        {std::max(rows_of_partials, 1), length}, mx::float32))
                  : std::nullopt;
  };
  auto weight_partials = partials(spec.weight);
  auto bias_partials = partials(spec.bias);

  if (rows > 0) {
    Backward b{
        spec,
        geometry,
        walks,
        cluster,
        rows,
        length,
        read_rows(in.s, width, plan),
        read_rows(in.cotangent, width, plan),
        weight_partials,
        bias_partials,
        std::nullopt};
    if (by_columns && spec.weight) {
      b.statistics = plan.temporary({rows, 3}, mx::float32);
    }
    if (spec.input || spec.weight || !by_columns) {
      std::optional<RowOperand> weight, sum_cotangent;
      if (in.weight) {
        weight = read_parameter(*in.weight, width, plan);
      }
      if (in.sum_cotangent) {
        sum_cotangent = read_rows(*in.sum_cotangent, width, plan);
      }
      plan.launches.push_back(rows_launch(
          b, weight, sum_cotangent, input, by_columns, limits.slot_bytes));
    }
    if (by_columns) {
      plan.launches.push_back(columns_launch(b));
    }
  }

  if (weight_gradient || bias_gradient) {
    plan.launches.push_back(sum_partials(
        heads,
        rows_of_partials / heads,
        length,
        weight_partials,
        weight_gradient,
        bias_partials,
        bias_gradient));
  }
  return plan;
}

} // namespace mlx_norms
