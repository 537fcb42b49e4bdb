// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/cpu/gate_row.h"
#include "csrc/norm/cpu/gradients.h"
#include "csrc/norm/cpu/level.h"

namespace {

// A row of the gate, activated, and the activation's slopes. Only what takes
// longer than a sigmoid is looked up.
template <typename T, Activation kActivation>
struct ActivatedRow {
  using F = ActivationOf<kActivation, float>;
  using Slope = SlopeOf<kActivation>;

  GateRow<T, F> gate;
  GateRow<T, Slope> slope;

  ActivatedRow(const NormVJPJob& job, int64_t row)
      : gate{{job.gate, row}, nullptr},
        slope{{job.gate, row}, nullptr} {
    if constexpr (kActivation == Activation::Gelu) {
      gate.table = gate_table<T, F>(job);
      slope.table = gate_table<T, Slope>(job);
    }
  }

  template <typename Extent>
  ValueAndSlope operator()(int64_t i, Extent extent) const {
    if constexpr (
        kActivation == Activation::Sigmoid || kActivation == Activation::Silu) {
      return value_and_slope<kActivation>(gate.gate(i, extent));
    } else {
      return {gate(i, extent), slope(i, extent)};
    }
  }
};

// Multiplies a row by the activated gate, which is stored in `by` if it is not
// null, and by the slopes.
void multiply_by_gate(
    const NormVJPJob& job,
    int64_t row,
    const float* from,
    float* product,
    float* slopes,
    float* by) {
  with_type(job.gate.type, [&](auto type) {
    with_activation(job.activation, [&](auto activation) {
      ActivatedRow<typename decltype(type)::type, decltype(activation)::value>
          gate(job, row);
      for_vectors(job.width, [=](int64_t i, auto extent) {
        auto of = gate(i, extent);
        Floats v = load(from + i);
        store(product + i, of.value * v);
        store(slopes + i, of.slope * v);
        if (by) {
          store(by + i, of.value);
        }
      });
    });
  });
}

RowsOut row_of(const RowsOut& rows, int64_t row, int64_t width) {
  int size = rows.type == Float::f32 ? 4 : 2;
  return {static_cast<char*>(rows.data) + row * width * size, rows.type};
}

// Stores the vectors v(i) of a row.
template <typename F>
void store_row_of(const RowsOut& rows, int64_t row, int64_t width, F v) {
  auto one = row_of(rows, row, width);
  with_type(one.type, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(one.data);
    for_vectors(
        width, [=](int64_t i, auto extent) { store(to + i, v(i), extent); });
  });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

// The gradients of rows with a gate, in float32: those of the norm of x times
// the activated gate, or those for the cotangent times it.
void vjp_of_gated_rows(const NormVJPJob& job) {
  auto width = job.width;
  auto pitch = padded(width);
  float* s_row = job.scratch;
  float* g_row = s_row + pitch;
  float* by = g_row + pitch;
  float* slopes = by + pitch;
  float* of_s = slopes + pitch;
  bool first = job.gate_first;
  bool wants_weight = job.weight_gradient.sum;
  auto one = job; // a row of it
  one.rows = 1;
  for (int64_t row = 0; row < job.rows; ++row) {
    one.first_row = job.first_row + row;
    auto s = load_row(job.s, row, width, s_row);
    auto g = load_row(job.cotangent, row, width, g_row);
    // What the gate multiplies, and the slopes in its gradient.
    auto& gated = first ? s : g;
    auto* product = first ? s_row : g_row;
    multiply_by_gate(
        job,
        row,
        gated.data,
        product,
        slopes,
        first && job.input.data ? by : nullptr);
    gated = padded_row(product, width);
    VJPRow<false, float, float> to{s.data, g.data, nullptr, {}, 0, 0};
    measure<false>(to, s, one, 0);

    auto rstd = to.statistics.rstd;
    auto* weight = job.weight.data + weight_offset(one, 0);
    if (job.gate_gradient.data && !first) {
      store_row_of(job.gate_gradient, row, width, [=](int64_t i) {
        return load(s.data + i) * rstd * load(weight + i) * load(slopes + i);
      });
    }
    if (first && (job.input.data || job.gate_gradient.data)) {
      one.input = {of_s, Float::f32};
    } else if (job.input.data) {
      one.input = row_of(job.input, row, width);
    }
    with_type(one.input.type, [&](auto type) {
      gradients_of_rows<typename decltype(type)::type, false, false, 1>(
          one, 0, wants_weight, false, &to);
    });
    add_partials(job, row, wants_weight, false);
    if (job.gate_gradient.data && first) {
      store_row_of(job.gate_gradient, row, width, [=](int64_t i) {
        return load(of_s + i) * load(slopes + i);
      });
    }
    if (job.input.data && first) {
      store_row_of(job.input, row, width, [=](int64_t i) {
        return load(of_s + i) * load(by + i);
      });
    }
  }
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
