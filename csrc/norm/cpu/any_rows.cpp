// Copyright © 2026 mlx_norms contributors
//
// Any rows with any options. Some at a time are copied in float32, and each
// option is a step over them, in the order of csrc/norm/fallback.cpp.

#include "csrc/cpu/activations.h"
#include "csrc/norm/cpu/clamp.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/statistics.h"

namespace {

inline Floats rounded(Floats v, Float type) {
  switch (type) {
    case Float::f16:
      return round_to<Half>(v);
    case Float::bf16:
      return round_to<BFloat>(v);
    default:
      return v;
  }
}

class AnyRows {
 public:
  explicit AnyRows(const NormJob& job)
      : job_(job),
        pitch_(padded(job.width)),
        x_(job.in[kX]),
        other_(job.in[job.in[kResidual].data ? kResidual : kGate]),
        to_(job.normalized, job.width) {}

  // Starts with so many rows.
  void load_x(int64_t first, int64_t n) {
    first_ = first;
    n_ = n;
    type_ = job_.in[kX].type;
    load_rows(job_.in[kX], first_, n_, job_.width, job_.scratch);
  }

  // x, or the result, times the activated gate.
  void gate() {
    with_activation(
        job_.activation,
        [&]<Activation kActivation>(ActivationFlag<kActivation>) {
          multiply(kGate, [late = job_.late]<typename T>(Type<T>, Floats e) {
            return late ? activated<kActivation, float>(e)
                        : activated<kActivation, T>(e);
          });
        });
  }

  // Adds up the residuals and x, or the factor's product with it or with the
  // first sum. The result is stored.
  void add() {
    auto of_x = type_;
    if (!job_.factor_of_sum) {
      apply_factor();
    }
    type_ = of_x;
    add_residual();
    if (job_.factor_of_sum) {
      apply_factor();
    }
    add(kResidual2, true);
    auto to = job_.sum.type;
    bool clamp = job_.clamp && to == Float::f16;
    if (clamp || type_ != to) {
      for_each_vector(
          [=](Floats v) { return rounded(clamp ? clamp_half(v) : v, to); });
    }
    store_rows(job_.scratch, job_.width, job_.sum, first_, n_);
  }

  // Applies the weight and the bias, too. Rounding early, values have the
  // output's dtype before, and after if there is more to do. Meanwhile the
  // coming rows are prefetched.
  void normalize(bool more) {
    type_ = type_of_result();
    with_type(type_, [&]<typename T>(Type<T>) {
      with_flag(job_.center, [&](auto center) {
        for_each_row([&](int64_t row, float* v) {
          auto width = job_.width;
          auto summed = sum_row<center.value>(WholeRow<float>{v, width});
          auto statistics = row_statistics(summed, job_.root);
          const float* weight = row_of(job_.weight, job_, row);
          const float* bias = row_of(job_.bias, job_, row);
          bool has_bias = job_.bias.data;
          auto coming = first_ + 2 * n_ <= job_.rows ? row + n_ : row;
          auto x = x_, other = other_, to = to_;
          for (int64_t i = 0; i < width; i += kWidth) {
            x.prefetch(coming, i);
            other.prefetch(coming, i);
            to.prefetch<1>(coming, i);
            Floats y = round_to<T>(statistics.normalize(load(v + i)));
            y *= load(weight + i);
            if (has_bias) {
              y += load(bias + i);
            }
            store(v + i, more ? round_to<T>(y) : y);
          }
        });
      });
    });
  }

  void modulate() {
    multiply(kScale, [late = job_.late]<typename T>(Type<T>, Floats e) {
      Floats v = e + 1.0f;
      return late ? v : round_to<T>(v);
    });
    add(kShift, false);
  }

  void activate() {
    round();
    with_activation(
        job_.activation,
        [&]<Activation kActivation>(ActivationFlag<kActivation>) {
          with_type(type_, [&]<typename T>(Type<T>) {
            for_each_vector(
                [](Floats v) { return activated<kActivation, T>(v); });
          });
        });
  }

  void gate_result() {
    round();
    gate();
  }

  void multiply() {
    round();
    for_each_vector([by = job_.multiplier](Floats v) { return v * by; });
  }

  void store_result() {
    store_rows(job_.scratch, job_.width, job_.normalized, first_, n_);
  }

 private:
  template <typename F>
  void for_each_row(F f) {
    for (int64_t i = 0; i < n_; ++i) {
      f(first_ + i, job_.scratch + i * pitch_);
    }
  }

  template <typename F>
  void for_each_vector(F f) {
    for_each_row([&](int64_t, float* v) {
      for (int64_t i = 0; i < job_.width; i += kWidth) {
        store(v + i, f(load(v + i)));
      }
    });
  }

  // Takes f(type, v, e) of the vectors and an operand's, if it is there, and
  // rounds it to the dtype that MLX's result has.
  template <typename F>
  void combine(Operand operand, bool rounds, F f) {
    const auto& rows = job_.in[operand];
    if (!rows.data) {
      return;
    }
    type_ = rounds && type_ == rows.type ? type_ : Float::f32;
    rounds = type_ == rows.type;
    with_type(rows.type, [&]<typename T>(Type<T> type) {
      for_each_row([&](int64_t row, float* v) {
        Row<T> of(rows, row);
        for_vectors(job_.width, [=](int64_t i, auto extent) {
          Floats y = f(type, load(v + i), of(i, extent));
          store(v + i, rounds ? round_to<T>(y) : y);
        });
      });
    });
  }

  void add(Operand operand, bool rounds) {
    combine(operand, rounds, [](auto, Floats v, Floats e) { return v + e; });
  }
  void add_residual() {
    auto alpha = job_.numbers.alpha;
    if (alpha == 1.0f) {
      return add(kResidual, true);
    }
    combine(
        kResidual,
        true,
        [alpha, late = job_.late]<typename T>(Type<T>, Floats v, Floats e) {
          Floats product = e * alpha;
          return v + (late ? product : round_to<T>(product));
        });
  }
  template <typename F>
  void multiply(Operand operand, F factor) {
    combine(operand, !job_.late, [=](auto type, Floats v, Floats e) {
      return v * factor(type, e);
    });
  }
  void apply_factor() {
    multiply(kFactor, [](auto, Floats e) { return e; });
    if (job_.numbers.factor != 1.0f) {
      auto to = job_.late ? Float::f32 : type_;
      for_each_vector([to, factor = job_.numbers.factor](Floats v) {
        return rounded(v * factor, to);
      });
    }
  }

  Float type_of_result() const {
    return job_.late ? Float::f32 : job_.normalized.type;
  }

  // Makes them results again, after a step that has not rounded them.
  void round() {
    auto to = type_of_result();
    if (type_ != to) {
      type_ = to;
      for_each_vector([to](Floats v) { return rounded(v, to); });
    }
  }

  const NormJob& job_;
  int64_t pitch_;
  ComingRows x_, other_, to_;
  int64_t first_;
  int64_t n_;
  Float type_; // that the rows would have in MLX
};

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_any_rows(const NormJob& job) {
  bool gated = job.in[kGate].data;
  bool gates_result = gated && !job.gate_first;
  bool activates = !gated && job.activation != Activation::None;
  bool modulates = job.in[kScale].data || job.in[kShift].data;
  bool multiplies = job.multiplier != 1.0f;
  auto together = scratch_rows(job.width);
  AnyRows rows(job);
  for (int64_t first = 0; first < job.rows; first += together) {
    auto left = job.rows - first;
    rows.load_x(first, left < together ? left : together);
    if (gated && job.gate_first) {
      rows.gate();
    }
    if (job.in[kResidual].data) {
      rows.add();
    }
    rows.normalize(modulates || gates_result || activates || multiplies);
    if (modulates) {
      rows.modulate();
    }
    if (gates_result) {
      rows.gate_result();
    }
    if (activates) {
      rows.activate();
    }
    if (multiplies) {
      rows.multiply();
    }
    rows.store_result();
  }
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
