// Copyright © 2026 mlx_norms contributors
//
// The gradients of any rows: each is copied in float32, and multiplied there by
// its gate, if it has one.

#include "csrc/cpu/activations.h"
#include "csrc/norm/cpu/gradients.h"
#include "csrc/norm/cpu/level.h"

namespace {

// Multiplies a row by its activated gate. The gate becomes that, and `of_gate`
// its slope times the row as it was.
inline void multiply_by_gate(
    const NormVJPJob& job,
    float* gate,
    float* row,
    float* of_gate) {
  with_activation(
      job.activation, [&]<Activation kActivation>(ActivationFlag<kActivation>) {
        for (int64_t i = 0; i < job.width; i += kWidth) {
          auto by = value_and_slope<kActivation>(load(gate + i));
          Floats v = load(row + i);
          store(of_gate + i, v * by.slope);
          store(row + i, v * by.value);
          store(gate + i, by.value);
        }
      });
}

inline void multiply(float* row, const float* by, int64_t width) {
  for (int64_t i = 0; i < width; i += kWidth) {
    store(row + i, load(row + i) * load(by + i));
  }
}

// The rows that are read and stored after one of a job's.
struct NextRows {
  int64_t last;
  ComingRows in[3];
  ComingRows out[2];

  explicit NextRows(const NormVJPJob& job)
      : last(job.rows - 1),
        in{job.in[kX],
           job.in[kCotangent],
           job.in[job.in[kGate].data ? kGate : kSumCotangent]},
        out{{job.out[kX], job.width}, {job.out[kGate], job.width}} {}

  [[gnu::always_inline]] void prefetch(int64_t row, int64_t i) const {
    auto next = row < last ? row + 1 : row;
    for (const auto& rows : in) {
      rows.prefetch(next, i);
    }
    for (const auto& rows : out) {
      rows.prefetch<1>(next, i);
    }
  }
};

// The gate multiplies either the norm's input, or its result and so the
// cotangent.
template <bool kCenter>
void vjp_of_row(const NormVJPJob& job, const NextRows& next, int64_t row) {
  auto width = job.width;
  auto scratch_row = [&](int i) { return job.scratch + i * padded(width); };
  float *s = scratch_row(0), *g = scratch_row(1), *sum_cotangent = nullptr;
  load_rows(job.in[kX], row, 1, width, s);
  load_rows(job.in[kCotangent], row, 1, width, g);
  if (job.in[kSumCotangent].data) {
    sum_cotangent = scratch_row(2);
    load_rows(job.in[kSumCotangent], row, 1, width, sum_cotangent);
  }
  bool gated = job.in[kGate].data;
  float *gate = scratch_row(3), *of_gate = scratch_row(4);
  if (gated) {
    load_rows(job.in[kGate], row, 1, width, gate);
    multiply_by_gate(job, gate, job.gate_first ? s : g, of_gate);
  }
  VJPRow<kCenter, float> in{s, g, sum_cotangent, {}, 0, 0};
  measure(in, job, row);
  bool wants_dx = job.out[kX].data || (gated && job.gate_first);
  float* dx = wants_dx ? g : nullptr;
  gradients_of_rows<kCenter, 1>(
      job,
      row,
      job.weight_gradient.sum != nullptr,
      job.bias_gradient.sum != nullptr,
      &in,
      dx,
      [=](int64_t i) __attribute__((always_inline)) { next.prefetch(row, i); });
  add_partials(job, row);
  if (gated) {
    const float* weight = row_of(job.weight, job, row);
    for (int64_t i = 0; i < width; i += kWidth) {
      Floats of_product = job.gate_first
          ? load(dx + i)
          : in.statistics.normalize(load(s + i)) * load(weight + i);
      store(of_gate + i, load(of_gate + i) * of_product);
    }
    if (job.gate_first) {
      multiply(dx, gate, width);
    }
  }
  if (job.out[kX].data) {
    store_rows(dx, width, job.out[kX], row, 1);
  }
  if (job.out[kGate].data) {
    store_rows(of_gate, width, job.out[kGate], row, 1);
  }
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void vjp_of_any_rows(const NormVJPJob& job) {
  NextRows next(job);
  with_flag(job.center, [&](auto center) {
    for (int64_t row = 0; row < job.rows; ++row) {
      vjp_of_row<center.value>(job, next, row);
    }
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
