// Copyright © 2026 mlx_norms contributors
//
// What is done to the result of a row, and the factor of its input.

#pragma once

#include "csrc/norm/cpu/rows.h"

namespace {

// The factor of a row of x, in float32.
inline const float* factor_of(const NormJob& job) {
  return job.scratch + 3 * padded(job.width);
}

// y * (1 + scale) + shift, or y times a multiplier. Rounding early, each step
// rounds where one of MLX's ops would.
template <typename T>
struct Modulated {
  const float* factor; // padded rows
  const float* shift;
  bool rounds;
  bool round_product;

  Floats operator()(Floats y, int64_t i) const {
    if (rounds) {
      y = round_to<T>(y);
    }
    y *= load(factor + i);
    if (round_product) {
      y = round_to<T>(y);
    }
    return y + load(shift + i);
  }
};

inline bool is_factored(const NormJob& job) {
  return job.in[kFactor].data || job.number != 1.0f;
}

// Whether add_factored_row() stores the sum of a row before it is normalized.
inline bool is_summed_before(const NormJob& job) {
  return is_factored(job) || job.in[kResidual2].data;
}

inline bool is_modulated(const NormJob& job) {
  return job.in[kScale].data || job.in[kShift].data || job.multiplier != 1.0f;
}

// The rows that add_factored_row() stored.
inline RowsIn stored_sums(const NormJob& job) {
  return {job.sum.data, job.sum.type, job.width};
}

// The modulation and the factor of a job's rows, of which several may share
// one.
class Modulation {
 public:
  explicit Modulation(const NormJob& job)
      : job_(job),
        factor_(job.scratch + padded(job.width)),
        shift_(factor_ + padded(job.width)),
        factor_of_x_(shift_ + padded(job.width)) {
    fill(factor_, splat(job.multiplier));
    fill(shift_, -Floats{}); // minus zeros, which change nothing
    fill(factor_of_x_, splat(job.number));
  }

  // Before a row is read.
  void load_factor(int64_t row) {
    if (job_.in[kFactor].data) {
      load_once(
          job_.in[kFactor], row, factor_row_, factor_of_x_, [](auto, Floats v) {
            return v;
          });
    }
  }

  template <typename T>
  Modulated<T> of_row(int64_t row) {
    if (job_.in[kScale].data) {
      load_once(
          job_.in[kScale], row, scale_row_, factor_, [&](auto type, Floats v) {
            using S = typename decltype(type)::type;
            v = v + splat(1.0f);
            return job_.late ? v : round_to<S>(v);
          });
    }
    if (job_.in[kShift].data) {
      load_once(job_.in[kShift], row, shift_row_, shift_, [](auto, Floats v) {
        return v;
      });
    }
    return {factor_, shift_, job_.round_result, job_.round_product};
  }

 private:
  void fill(float* to, Floats value) const {
    for (int64_t i = 0; i < job_.width; i += kWidth) {
      store(to + i, value);
    }
  }

  // Loads f(type, v) of a row's vectors v, unless it was the last one.
  template <typename F>
  void load_once(const RowsIn& rows, int64_t row, int64_t& last, float* to, F f)
      const {
    auto at = row * rows.row_stride;
    if (at == last) {
      return;
    }
    last = at;
    with_type(rows.type, [&](auto type) {
      Row<typename decltype(type)::type> from(rows, row);
      for_vectors(job_.width, [=](int64_t i, auto extent) {
        store(to + i, f(type, from(i, extent)));
      });
    });
  }

  const NormJob& job_;
  float* factor_;
  float* shift_;
  float* factor_of_x_;
  int64_t factor_row_ = -1;
  int64_t scale_row_ = -1;
  int64_t shift_row_ = -1;
};

} // namespace
