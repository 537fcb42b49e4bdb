// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/persistent_loops.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

RowKernel kernel_of(const NormSpec& norm) {
  return norm.center ? RowKernel::CenteredBackward : RowKernel::Backward;
}

// A long row of so many arrays is read in chunks on CUDA, if it fits neither in
// threadgroup memory nor, beside sums, in registers.
Geometry geometry_of(const NormSpec& norm, const array& x, mx::Stream stream) {
  auto backend = backend_of(stream);
  int length = x.shape(-1);
  auto geometry = geometry_for(kernel_of(norm), length, x.itemsize(), backend);
  int arrays = 2 + norm.has(kSumCotangent) + norm.has(kGate);
  bool fits = geometry.group_size() <= 512 ||
      arrays * geometry.row_bytes() <= device_limits(stream).staged_bytes;
  return backend == Backend::Cuda && !geometry.looped && !fits
      ? in_chunks(geometry)
      : geometry;
}

// On Metal registers are few, by tools/agx. Whether they hold the row that is
// fetched while another one is computed.
bool fetches_next(
    const Geometry& geometry,
    const NormSpec& norm,
    Backend backend) {
  if (backend == Backend::Cuda) {
    return true;
  }
  if (norm.has(kGate)) {
    return geometry.simds == 1;
  }
  return norm.center ? geometry.rows_per_simd() == 1 && geometry.simds <= 8
                     : geometry.simds == 1 || geometry.vectors == 1;
}

// Whether threads hold so many elements that sums of the parameters' gradients
// would not fit beside them.
bool holds_much(const Geometry& geometry, Backend backend) {
  return backend != Backend::Cuda && geometry.width * geometry.vectors > 8;
}

// What the launches have in common.
struct Backward {
  const NormSpec& norm;
  Operands wanted;
  Geometry geometry;
  Backend backend;
  PersistentLoops loops;
  Cluster cluster;
  int rows;
  int length;
  PerOperand<std::optional<RowOperand>> read;
  bool adjoining; // rows that use one row of the weight
  bool direct;    // partial sums are gradients
  std::optional<array> weight_partials, bias_partials, statistics;
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

// The launch for the gradients of x and the gate and, unless by_columns, the
// partial sums.
Launch rows_launch(
    const Backward& b,
    const array* x_gradient,
    const array* gate_gradient,
    bool by_columns,
    int staged_bytes) {
  using K = kernels::norm_vjp;
  const auto& norm = b.norm;
  const auto& read = b.read;
  int width = b.geometry.width;
  int max_threads = max_threads_of(kernel_of(norm), b.geometry, b.backend);
  Launch launch({"norm_vjp", width, b.geometry.vectors, max_threads});
  launch.set(K::center, norm.center);
  launch.set(K::l2, norm.l2);
  launch.set(K::eps_bounds, norm.eps_bounds);
  bind_geometry<K>(launch, b.geometry, b.length);
  launch.set(K::has_weight_offset, norm.weight_offset != 0.0f);
  launch.set(
      K::clamped_sum, norm.clamp && read[kX]->array->dtype() == mx::float16);
  launch.set(K::want_input, b.wanted.has(kX));
  launch.set(K::gate_first, norm.gate_first);
  launch.set(K::activation, static_cast<int32_t>(norm.activation));
  launch.set(K::want_gate, b.wanted.has(kGate));
  launch.set(K::want_weight, b.wanted.has(kWeight) && !by_columns);
  launch.set(K::want_bias, b.wanted.has(kBias) && !by_columns);
  launch.set(K::keep_statistics, b.statistics.has_value());
  Stages staged(
      b.geometry,
      b.length,
      {pointer_to(read[kX]),
       pointer_to(read[kCotangent]),
       pointer_to(read[kSumCotangent]),
       pointer_to(read[kGate])},
      {pointer_to(read[kWeight])},
      staged_bytes);
  bind_loops<K>(launch, b.geometry, b.loops, b.cluster, staged);
  launch.set(K::identity, norm.identity);
  launch.set(K::adjoining, b.adjoining);
  launch.set(K::fetch_next, fetches_next(b.geometry, norm, b.backend));
  // Beside LayerNorm's sums, of which there are more.
  bool fits =
      staged.weights > 0 || !norm.center || staged.leaves_registers(b.geometry);
  launch.set(K::hold_weight, fits && !holds_much(b.geometry, b.backend));

  bind_rows(launch, K::s, read[kX]);
  bind_rows(launch, K::weight, read[kWeight]);
  bind_rows(launch, K::cotangent, read[kCotangent]);
  bind_rows(launch, K::sum_cotangent, read[kSumCotangent]);
  bind_rows(launch, K::gate, read[kGate]);
  bind_rows(launch, K::input_gradient, x_gradient, width);
  bind_rows(launch, K::gate_gradient, gate_gradient, width);
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
  launch.set(K::sums_weight, b.wanted.has(kWeight));
  launch.set(K::sums_bias, b.wanted.has(kBias));
  launch.set(K::gate_first, b.norm.gate_first);
  launch.set(K::activation, static_cast<int32_t>(b.norm.activation));
  bind_rows(launch, K::gate, b.read[kGate]);
  bind_rows(launch, K::s, b.read[kX]);
  bind_rows(launch, K::cotangent, b.read[kCotangent]);
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

bool NormVJP::reads_rows_again(const array& x, mx::Stream stream) const {
  if (!norm.is_of_rows() || backend_of(stream) == Backend::Cpu ||
      !wanted.has_any({kWeight, kBias})) {
    return false;
  }
  auto geometry = geometry_of(norm, x, stream);
  return geometry.looped || holds_much(geometry, backend_of(stream));
}

bool NormVJP::stores_gradients(const Arrays& inputs, mx::Stream stream) const {
  const auto& x = inputs[0];
  int heads = groups_of(inputs).count;
  if (x.size() == 0 || heads <= 1 || reads_rows_again(x, stream)) {
    return false;
  }
  auto geometry = geometry_of(norm, x, stream);
  auto limits = device_limits(stream);
  PersistentLoops loops(
      row_count(x), heads, geometry, limits, backend_of(stream));
  return loops.count == heads; // several heads are not clustered
}

LaunchPlan NormVJP::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) const {
  if (norm.grouped) {
    return plan_groups_vjp(*this, inputs, outputs, stream);
  }
  if (norm.axis != -1) {
    return plan_channels_vjp(*this, inputs, outputs, stream);
  }
  LaunchPlan plan(stream);
  NormInputs in(norm.operands, inputs.data());
  const auto& x = in.x();
  auto gradient = [&](Operand operand) {
    return wanted.find(operand, outputs.data());
  };
  auto* weight_gradient = gradient(kWeight);
  auto* bias_gradient = gradient(kBias);

  int length = x.shape(-1);
  int rows = row_count(x);
  auto groups = groups_of(inputs);
  int heads = groups.count;
  if (length == 0 || heads == 0) {
    return plan;
  }
  auto geometry = geometry_of(norm, x, stream);
  int width = geometry.width;
  auto limits = device_limits(stream);
  PersistentLoops loops(rows, heads, geometry, limits, backend_of(stream));
  Cluster cluster(
      x.size(),
      wanted.has(kWeight) + wanted.has(kBias),
      geometry,
      loops,
      limits);
  int rows_of_partials = ceil_div(loops.count, cluster.size);
  bool by_columns = reads_rows_again(x, stream);

  bool direct = stores_gradients(inputs, stream);
  auto partials = [&](const array* gradient) -> OptionalArray {
    if (!gradient || direct) {
      return gradient ? std::optional(*gradient) : std::nullopt;
    }
    return plan.temporary({std::max(rows_of_partials, 1), length}, mx::float32);
  };
  auto weight_partials = partials(weight_gradient);
  auto bias_partials = partials(bias_gradient);

  if (rows > 0) {
    Backward b{
        norm,
        wanted,
        geometry,
        backend_of(stream),
        loops,
        cluster,
        rows,
        length,
        {},
        groups.adjoin,
        direct,
        weight_partials,
        bias_partials,
        std::nullopt};
    for (auto operand : norm.operands.without({kWeight})) {
      b.read[operand] = read_rows(*in[operand], width, plan);
    }
    if (by_columns && wanted.has(kWeight)) {
      b.statistics = plan.temporary({rows, 3}, mx::float32);
    }
    if (wanted.has_any({kX, kGate, kWeight}) || !by_columns) {
      if (auto* weight = in[kWeight]) {
        b.read[kWeight] = weight->ndim() > 2
            ? read_broadcast(*weight, x, width, plan)
            : read_parameter(*weight, width, plan);
      }
      plan.launches.push_back(rows_launch(
          b, gradient(kX), gradient(kGate), by_columns, limits.staged_bytes));
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
