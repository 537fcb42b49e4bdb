// Copyright © 2026 mlx_norms contributors
//
// Arrays in the form that the kernels expect: rows, and weights and biases with
// their gradients in float32.

#pragma once

#include <algorithm>
#include <memory>

#include "csrc/common/axes.h"
#include "csrc/cpu/row_runs.h"
#include "csrc/cpu/scratch.h"
#include "csrc/norm/cpu_kernels.h"
#include "csrc/norm/spec.h"

namespace mlx_norms::cpu {

inline Float float_type(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::Dtype::Val::float16:
      return Float::f16;
    case mx::Dtype::Val::bfloat16:
      return Float::bf16;
    default:
      return Float::f32;
  }
}

inline Root root_of(const NormSpec& spec) {
  return {spec.eps, spec.l2, spec.eps_bounds};
}

inline NormOptions options_of(const NormSpec& spec) {
  return {
      .root = root_of(spec),
      .activation = spec.activation,
      .gate_first = spec.gate_first,
      .center = spec.center,
      .late = spec.rounding == Rounding::Late,
      .clamp = spec.clamp,
      .identity = spec.identity,
      .numbers = spec,
      .has_numbers = spec.has_numbers(),
      .factor_of_sum = spec.factor_of_sum,
      .multiplier = spec.multiplier};
}

inline RowsIn rows_in(const mx::array& a, int64_t row_stride) {
  auto step = a.size() == 1 || a.shape(-1) == 1 ? 1 : a.strides(-1);
  return {a.data<char>(), float_type(a.dtype()), row_stride, step};
}

inline RowsOut rows_out(mx::array& a) {
  return {a.data<char>(), float_type(a.dtype())};
}

inline size_t size_of(Float type) {
  return type == Float::f32 ? 4 : 2;
}

inline RowsIn from(RowsIn rows, int64_t element) {
  auto* data = static_cast<const char*>(rows.data);
  rows.data = data + element * size_of(rows.type);
  return rows;
}

inline RowsOut from(RowsOut rows, int64_t element) {
  if (rows.data) {
    rows.data = static_cast<char*>(rows.data) + element * size_of(rows.type);
  }
  return rows;
}

// The operands that have a row for each of x's, in runs.
class OperandRows {
 public:
  OperandRows(const NormInputs& in, Operands operands)
      : operands_(operands),
        runs_(arrays_of(in, operands)) {
    int i = 0;
    for (auto operand : operands) {
      const auto& a = *in[operand];
      rows_[operand] = rows_in(a, runs_.row_stride(i++));
      if (a.ndim() == 0 || a.shape(-1) != in.x().shape(-1)) {
        rows_[operand].step = 0; // one element for all
      }
    }
  }

  // Calls f(first_row, rows, offsets) for each run (see RowRuns).
  template <typename F>
  void for_each(int64_t begin, int64_t end, F f) const {
    runs_.for_each(begin, end, f);
  }

  // The rows of a run, for a job.
  void find(const Steps& offsets, RowsIn (&in)[kOperands]) const {
    int i = 0;
    for (auto operand : operands_) {
      in[operand] = from(rows_[operand], offsets[i++]);
    }
  }

 private:
  static mx::SmallVector<const mx::array*> arrays_of(
      const NormInputs& in,
      Operands operands) {
    mx::SmallVector<const mx::array*> arrays;
    for (auto operand : operands) {
      arrays.push_back(in[operand]);
    }
    return arrays;
  }

  Operands operands_;
  RowRuns runs_;
  RowsIn rows_[kOperands];
};

// A weight or bias, whose rows are read in float32 when the task runs.
struct Parameter {
  RowsIn rows; // the first
  Axes axes;
  int64_t n_rows = 0; // 0: absent
  int64_t width = 0;
  float offset = 0.0f;

  Parameter() = default;
  // Null: absent.
  explicit Parameter(const mx::array* a, float offset = 0.0f) {
    if (a) {
      rows = rows_in(*a, 0);
      axes = row_axes(*a);
      n_rows = size_of(axes);
      width = a->shape(-1);
      this->offset = offset;
    }
  }

  RowsIn row(int64_t i) const {
    return from(rows, offsets_at(axes, i)[0]);
  }
  // One row of it, which may be absent.
  Parameter only(int64_t i) const {
    auto one = *this;
    if (n_rows > 0) {
      one.rows = row(i);
      one.axes = {{1, {}}};
      one.n_rows = 1;
    }
    return one;
  }

  // Kernels take an absent weight as one row of ones.
  int64_t row_count() const {
    return std::max<int64_t>(n_rows, 1);
  }
};

// A parameter in float32 for the kernels: its own data, or a copy.
class FloatParameter {
 public:
  explicit FloatParameter(const Parameter& p) : data_(nullptr) {
    if (p.n_rows == 0) {
      return;
    }
    auto pitch = padded(p.width);
    bool padded_rows = p.width == pitch &&
        (p.n_rows == 1 ||
         (p.axes.size() == 1 && p.axes[0].strides[0] == pitch));
    if (p.rows.type == Float::f32 && p.rows.step == 1 && padded_rows &&
        p.offset == 0.0f) {
      data_ = static_cast<const float*>(p.rows.data);
      return;
    }
    copy_ = std::make_unique_for_overwrite<float[]>(p.n_rows * pitch);
    for (int64_t row = 0; row < p.n_rows; ++row) {
      kernels().load(p.row(row), 0, p.width, &copy_[row * pitch]);
    }
    if (p.offset != 0.0f) {
      for (int64_t i = 0; i < p.n_rows * pitch; ++i) {
        copy_[i] += p.offset;
      }
    }
    data_ = copy_.get();
  }

  // One row of a value.
  FloatParameter(int64_t width, float value)
      : copy_(std::make_unique_for_overwrite<float[]>(padded(width))) {
    std::fill_n(copy_.get(), padded(width), value);
    data_ = copy_.get();
  }

  const float* data() const {
    return data_;
  }

 private:
  std::unique_ptr<float[]> copy_;
  const float* data_;
};

inline FloatParameter weight_or_ones(const Parameter& p, int64_t width) {
  return p.n_rows ? FloatParameter(p) : FloatParameter(width, 1.0f);
}

// Zeros are negative: they change nothing.
inline FloatParameter bias_or_zeros(const Parameter& p, int64_t width) {
  return p.n_rows ? FloatParameter(p) : FloatParameter(width, -0.0f);
}

// A parameter's gradient, summed in float32 over the rows of each block and
// then over the blocks in order.
class ParameterGradient {
 public:
  ParameterGradient(bool wanted, int64_t n_rows, int64_t width, int blocks)
      : n_rows_(n_rows),
        width_(width),
        blocks_(blocks) {
    if (wanted) {
      sums_ = std::make_unique<float[]>((blocks + 1) * 3 * size());
    }
  }

  CompensatedSum block(int i) const {
    auto* sum = sums_.get();
    if (!sum) {
      return {};
    }
    sum += 3 * i * size();
    return {sum, sum + size(), sum + 2 * size()};
  }

  void store(const RowsOut& to) const {
    if (!sums_) {
      return;
    }
    auto total = block(blocks_);
    for (int i = 0; i < blocks_; ++i) {
      kernels().add_sums(total, block(i), size());
    }
    for (int64_t row = 0; row < n_rows_; ++row) {
      kernels().store(
          total.sum + row * padded(width_), width_, from(to, row * width_));
    }
  }

 private:
  int64_t size() const {
    return n_rows_ * padded(width_);
  }

  int64_t n_rows_;
  int64_t width_;
  int blocks_;
  std::unique_ptr<float[]> sums_;
};

} // namespace mlx_norms::cpu
