// Copyright © 2026 mlx_norms contributors
//
// The gradients of any rows. Some at a time are copied in float32, and
// multiplied there by their gate, if they have one.

#include "csrc/cpu/activations.h"
#include "csrc/norm/cpu/gradients.h"
#include "csrc/norm/cpu/level.h"

namespace {

// Multiplies `size` elements by their activated gate. The gate becomes that,
// and `of_gate` its slope times what is multiplied.
inline void multiply_by_gate(
    Activation activation,
    float* gate,
    float* v,
    float* of_gate,
    int64_t size) {
  with_activation(
      activation, [=]<Activation kActivation>(ActivationFlag<kActivation>) {
        for (int64_t i = 0; i < size; i += kWidth) {
          auto by = value_and_slope<kActivation>(load(gate + i));
          Floats x = load(v + i);
          store(of_gate + i, x * by.slope);
          store(v + i, x * by.value);
          store(gate + i, by.value);
        }
      });
}

// The rows that are read and stored `n` rows after one of a job's.
struct NextRows {
  int64_t rows, n;
  ComingRows in[3];
  ComingRows out[2];

  NextRows(const NormVJPJob& job, int64_t n)
      : rows(job.rows),
        n(n),
        in{job.in[kX],
           job.in[kCotangent],
           job.in[job.in[kGate].data ? kGate : kSumCotangent]},
        out{{job.out[kX], job.width}, {job.out[kGate], job.width}} {}

  [[gnu::always_inline]] void prefetch(int64_t row, int64_t i) const {
    auto next = row + n < rows ? row + n : row;
    for (const auto& each : in) {
      each.prefetch(next, i);
    }
    for (const auto& each : out) {
      each.prefetch<1>(next, i);
    }
  }
};

// The gradients of n rows from `first` on. The gate multiplies either the
// norm's input, or its result and so the cotangent.
template <bool kCenter>
void vjp_of_some_rows(
    const NormVJPJob& job,
    const NextRows& next,
    int64_t first,
    int64_t n) {
  auto width = job.width, pitch = padded(width);
  auto* at = job.scratch;
  auto load_operand = [&](Operand operand) -> float* {
    if (!job.in[operand].data) {
      return nullptr;
    }
    auto* rows = at;
    at += next.n * pitch;
    load_rows(job.in[operand], first, n, width, rows);
    return rows;
  };
  auto *s = load_operand(kX), *g = load_operand(kCotangent);
  auto* sum_cotangent = load_operand(kSumCotangent);
  auto *gate = load_operand(kGate), *of_gate = at;
  if (gate) {
    auto* v = job.gate_first ? s : g;
    multiply_by_gate(job.activation, gate, v, of_gate, n * pitch);
  }
  bool wants_dx = job.out[kX].data || (gate && job.gate_first);
  for (auto row = first, at = int64_t{0}; row < first + n; ++row, at += pitch) {
    VJPRow<kCenter, float> in{s + at, g + at, nullptr, {}, 0, 0};
    if (sum_cotangent) {
      in.sum_cotangent = sum_cotangent + at;
    }
    measure(in, job, row);
    gradients_of_rows<kCenter, 1>(
        job,
        row,
        job.weight_gradient.sum != nullptr,
        job.bias_gradient.sum != nullptr,
        &in,
        wants_dx ? g + at : nullptr,
        [&](int64_t i)
            __attribute__((always_inline)) { next.prefetch(row, i); });
    add_partials(job, row);
    const float* weight = row_of(job.weight, job, row);
    for (int64_t i = 0; gate && i < width; i += kWidth) {
      Floats of_product = job.gate_first
          ? load(g + at + i)
          : in.statistics.normalize(load(s + at + i)) * load(weight + i);
      store(of_gate + at + i, load(of_gate + at + i) * of_product);
    }
  }
  for (int64_t i = 0; gate && job.gate_first && i < n * pitch; i += kWidth) {
    store(g + i, load(g + i) * load(gate + i));
  }
  if (job.out[kX].data) {
    store_rows(g, width, job.out[kX], first, n);
  }
  if (job.out[kGate].data) {
    store_rows(of_gate, width, job.out[kGate], first, n);
  }
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void vjp_of_any_rows(const NormVJPJob& job) {
  NextRows next(job, scratch_rows(job.width));
  with_flag(job.center, [&](auto center) {
    for (int64_t first = 0; first < job.rows; first += next.n) {
      auto left = job.rows - first;
      vjp_of_some_rows<center.value>(
          job, next, first, left < next.n ? left : next.n);
    }
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
