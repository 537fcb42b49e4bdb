// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/persistent_loops.h"
#include "csrc/norm/plan.h"
#include "csrc/norm/row_groups.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

RowKernel kernel_of(const NormVJPSpec& spec) {
  return spec.norm.center ? RowKernel::CenteredBackward : RowKernel::Backward;
}

Geometry
geometry_of(const NormVJPSpec& spec, const mx::array& s, mx::Stream stream) {
  return geometry_for(
      kernel_of(spec), s.shape(-1), s.itemsize(), backend_of(stream));
}

// On Metal registers are few, by tools/agx. Whether they hold the row that is
// fetched while another one is computed.
bool fetches_next(
    const Geometry& geometry,
    const NormVJPSpec& spec,
    Backend backend) {
  if (backend == Backend::Cuda) {
    return true;
  }
  if (spec.norm.gate) {
    return geometry.simds == 1;
  }
  return spec.norm.center ? geometry.rows_per_simd() == 1 && geometry.simds <= 8
                          : geometry.simds == 1 || geometry.vectors == 1;
}

// Whether threads hold so many elements that sums of the parameters' gradients
// would not fit beside them.
bool holds_much(const Geometry& geometry, Backend backend) {
  return backend != Backend::Cuda && geometry.width * geometry.vectors > 8;
}

// What the launches have in common.
struct Backward {
  const NormVJPSpec& spec;
  Geometry geometry;
  Backend backend;
  PersistentLoops loops;
  Cluster cluster;
  int rows;
  int length;
  RowOperand s, cotangent;
  std::optional<RowOperand> gate;
  bool adjoining; // rows that use one row of the weight
  bool direct;    // partial sums are gradients
  std::optional<mx::array> weight_partials, bias_partials, statistics;
};

// Binds the arrays to which a kernel stores its partial sums.
template <typename K>
void set_partials(Launch& launch, const Backward& b) {
  if (b.weight_partials) {
    launch.set(K::weight_partials, *b.weight_partials);
  }
  if (b.bias_partials) {
    launch.set(K::bias_partials, *b.bias_partials);
  }
}

// The launch for the input's gradient and, unless by_columns, the partial sums.
Launch rows_launch(
    const Backward& b,
    const std::optional<RowOperand>& weight,
    const std::optional<RowOperand>& sum_cotangent,
    const mx::array* input,
    const mx::array* gate_gradient,
    bool by_columns,
    int staged_bytes) {
  using K = kernels::norm_vjp;
  const auto& norm = b.spec.norm;
  int width = b.geometry.width;
  int most_threads = most_threads_of(kernel_of(b.spec), b.geometry, b.backend);
  Launch launch({"norm_vjp", width, b.geometry.vectors, most_threads});
  launch.set(K::center, norm.center);
  launch.set(K::l2, norm.l2);
  launch.set(K::eps_bounds, norm.eps_bounds);
  bind_geometry<K>(launch, b.geometry, b.length);
  launch.set(K::has_weight, weight.has_value());
  launch.set(K::has_weight_offset, norm.weight_offset != 0);
  launch.set(K::has_sum_cotangent, sum_cotangent.has_value());
  launch.set(K::clamped_sum, norm.clamp && b.s.array->dtype() == mx::float16);
  launch.set(K::want_input, b.spec.input);
  launch.set(K::has_gate, norm.gate);
  launch.set(K::gate_first, norm.gate_first);
  launch.set(K::activation, static_cast<int32_t>(norm.activation));
  launch.set(K::want_gate, b.spec.gate);
  launch.set(K::want_weight, b.spec.weight && !by_columns);
  launch.set(K::want_bias, b.spec.bias && !by_columns);
  launch.set(K::keep_statistics, b.statistics.has_value());
  Stages staged(
      b.geometry,
      b.length,
      {&b.s, &b.cotangent, pointer_to(sum_cotangent), pointer_to(b.gate)},
      {pointer_to(weight)},
      staged_bytes);
  bind_loops<K>(launch, b.geometry, b.loops, b.cluster, staged);
  launch.set(K::identity, norm.identity);
  launch.set(K::adjoining, b.adjoining);
  launch.set(K::fetch_next, fetches_next(b.geometry, b.spec, b.backend));
  // Beside LayerNorm's sums, of which there are more.
  bool fits =
      staged.weights > 0 || !norm.center || staged.leaves_registers(b.geometry);
  launch.set(K::hold_weight, fits && !holds_much(b.geometry, b.backend));

  bind_rows(launch, K::s, K::s_layout, K::s_flags, b.s);
  bind_rows(launch, K::weight, K::weight_layout, K::weight_flags, weight);
  bind_rows(
      launch,
      K::cotangent,
      K::cotangent_layout,
      K::cotangent_flags,
      b.cotangent);
  bind_rows(
      launch,
      K::sum_cotangent,
      K::sum_cotangent_layout,
      K::sum_cotangent_flags,
      sum_cotangent);
  bind_rows(launch, K::gate, K::gate_layout, K::gate_flags, b.gate);
  auto store = [&](Output to, Constant<int32_t> flags, const mx::array* a) {
    launch.set(flags, a ? output_flags(*a, width) : 0);
    if (a) {
      launch.set(to, *a);
    }
  };
  store(K::input_gradient, K::input_flags, input);
  store(K::gate_gradient, K::gate_gradient_flags, gate_gradient);
  if (!by_columns) {
    set_partials<K>(launch, b);
  }
  auto set_flags = [&](Constant<int32_t> to, const auto& gradient) {
    bool stored = b.direct && gradient;
    launch.set(to, stored ? output_flags(*gradient, width) : 0);
  };
  launch.set(K::stores_gradients, b.direct);
  set_flags(K::weight_gradient_flags, b.weight_partials);
  set_flags(K::bias_gradient_flags, b.bias_partials);
  if (b.statistics) {
    launch.set(K::kept_statistics, *b.statistics);
  }
  launch.set(K::rows, b.rows);
  launch.set(K::length, b.length);
  launch.set(K::heads, b.loops.heads);
  launch.set(K::eps, norm.eps);
  launch.set(K::weight_offset, norm.weight_offset);
  return launch;
}

// The launch for the partial sums of rows that are too long for registers.
Launch columns_launch(const Backward& b) {
  using K = kernels::parameter_gradients;
  constexpr int kGroupSize = 256;
  int width = b.geometry.width;
  Launch launch({"parameter_gradients", width});
  launch.set(K::whole, b.length % width == 0);
  launch.set(K::no_tail, b.length % width == 0);
  launch.set(K::scattered, false);
  launch.set(K::adjoining, b.adjoining);
  launch.set(K::sums_weight, b.spec.weight);
  launch.set(K::sums_bias, b.spec.bias);
  launch.set(K::has_gate, b.spec.norm.gate);
  launch.set(K::gate_first, b.spec.norm.gate_first);
  launch.set(K::activation, static_cast<int32_t>(b.spec.norm.activation));
  bind_rows(launch, K::gate, K::gate_layout, K::columns_gate_flags, b.gate);
  bind_rows(launch, K::s, K::s_layout, K::columns_s_flags, b.s);
  bind_rows(
      launch,
      K::cotangent,
      K::cotangent_layout,
      K::columns_cotangent_flags,
      b.cotangent);
  if (b.statistics) {
    launch.set(K::kept_statistics, *b.statistics);
  }
  set_partials<K>(launch, b);
  launch.set(K::rows, b.rows);
  launch.set(K::length, b.length);
  launch.set(K::heads, b.loops.heads);
  launch.set(K::rows_per_loop, b.loops.rows_per_loop);
  launch.groups[0] = ceil_div(ceil_div(b.length, width), kGroupSize);
  launch.groups[1] = b.loops.count;
  launch.group[0] = kGroupSize;
  return launch;
}

} // namespace

Launch sum_partials(
    int heads,
    int count, // rows of partial sums per head
    int length,
    const std::optional<mx::array>& weight_partials,
    const mx::array* weight_gradient,
    const std::optional<mx::array>& bias_partials,
    const mx::array* bias_gradient) {
  using K = kernels::sum_partials;
  constexpr int kColumnsPerGroup = 32;
  constexpr int kMany = 256; // rows, for which a few threads take long
  Launch launch(KernelName("sum_partials"));
  launch.set(K::sums_weight, weight_gradient != nullptr);
  launch.set(K::sums_bias, bias_gradient != nullptr);
  auto type = [](const mx::array* a) { return a ? float_type(a->dtype()) : 0; };
  launch.set(K::weight_gradient_type, type(weight_gradient));
  launch.set(K::bias_gradient_type, type(bias_gradient));
  if (weight_gradient) {
    launch.set(K::weight_partials, *weight_partials);
    launch.set(K::weight_gradient, *weight_gradient);
  }
  if (bias_gradient) {
    launch.set(K::bias_partials, *bias_partials);
    launch.set(K::bias_gradient, *bias_gradient);
  }
  int columns = heads * length;
  launch.set(K::count, count);
  launch.set(K::columns, columns);
  launch.groups[0] = ceil_div(columns, kColumnsPerGroup);
  launch.groups[1] = (weight_gradient != nullptr) + (bias_gradient != nullptr);
  int simds = count > kMany ? 32 : 8;
  launch.set(K::sum_simds, simds);
  launch.group[0] = simds * Geometry::kSimdSize;
  return launch;
}

bool reads_rows_again(
    const NormVJPSpec& spec,
    const mx::array& s,
    mx::Stream stream) {
  auto geometry = geometry_of(spec, s, stream);
  return (spec.weight || spec.bias) &&
      (geometry.looped || holds_much(geometry, backend_of(stream)));
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
  auto* gate_gradient = spec.gate ? &*next++ : nullptr;
  auto* weight_gradient = spec.weight ? &*next++ : nullptr;
  auto* bias_gradient = spec.bias ? &*next++ : nullptr;

  int length = in.s.shape(-1);
  int rows = row_count(in.s);
  auto groups = in.weight ? *row_groups(in.weight->shape(), in.s.shape())
                          : RowGroups{1, false};
  int heads = groups.count;
  if (length == 0 || heads == 0) {
    return plan;
  }
  auto geometry = geometry_of(spec, in.s, stream);
  int width = geometry.width;
  auto limits = device_limits(stream);
  PersistentLoops loops(rows, heads, geometry, limits, backend_of(stream));
  Cluster cluster(
      in.s.size(), spec.weight + spec.bias, geometry, loops, limits);
  int rows_of_partials = ceil_div(loops.count, cluster.size);
  bool by_columns = reads_rows_again(spec, in.s, stream);

  // Where one loop has all rows of a group, its sums are the gradients.
  bool direct =
      rows > 0 && heads > 1 && !by_columns && rows_of_partials == heads;
  auto partials = [&](const mx::array* gradient) -> std::optional<mx::array> {
    if (!gradient || direct) {
      return gradient ? std::optional(*gradient) : std::nullopt;
    }
    return plan.temporary({std::max(rows_of_partials, 1), length}, mx::float32);
  };
  auto weight_partials = partials(weight_gradient);
  auto bias_partials = partials(bias_gradient);

  if (rows > 0) {
    Backward b{
        spec,
        geometry,
        backend_of(stream),
        loops,
        cluster,
        rows,
        length,
        read_rows(in.s, width, plan),
        read_rows(in.cotangent, width, plan),
        in.gate ? std::optional(read_rows(*in.gate, width, plan))
                : std::nullopt,
        groups.adjoin,
        direct,
        weight_partials,
        bias_partials,
        std::nullopt};
    if (by_columns && spec.weight) {
      b.statistics = plan.temporary({rows, 3}, mx::float32);
    }
    if (spec.input || spec.gate || spec.weight || !by_columns) {
      std::optional<RowOperand> weight, sum_cotangent;
      if (in.weight) {
        weight = in.weight->ndim() > 2
            ? read_broadcast(*in.weight, in.s, width, plan)
            : read_parameter(*in.weight, width, plan);
      }
      if (in.sum_cotangent) {
        sum_cotangent = read_rows(*in.sum_cotangent, width, plan);
      }
      plan.launches.push_back(rows_launch(
          b,
          weight,
          sum_cotangent,
          input,
          gate_gradient,
          by_columns,
          limits.staged_bytes));
    }
    if (by_columns) {
      plan.launches.push_back(columns_launch(b));
    }
  }

  if ((weight_gradient || bias_gradient) && !direct) {
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
