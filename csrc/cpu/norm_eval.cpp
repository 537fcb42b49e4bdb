// Copyright © 2026 mlx_norms contributors

#include <memory>

#include "csrc/cpu/isa.h"
#include "csrc/cpu/row_runs.h"
#include "csrc/norm.h"
#include "mlx/backend/common/utils.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

Float float_type(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::Dtype::Val::float16:
      return Float::f16;
    case mx::Dtype::Val::bfloat16:
      return Float::bf16;
    default:
      return Float::f32;
  }
}

RowsIn rows_in(const mx::array& a, int64_t row_stride) {
  auto step = a.shape(-1) == 1 ? 1 : a.strides(-1);
  return {a.data<char>(), float_type(a.dtype()), row_stride, step};
}

RowsOut rows_out(mx::array& a) {
  return {a.data<char>(), float_type(a.dtype())};
}

const void* at(const RowsIn& rows, int64_t element) {
  auto size = rows.type == Float::f32 ? 4 : 2;
  return static_cast<const char*>(rows.data) + element * size;
}

void* at(const RowsOut& rows, int64_t element) {
  auto size = rows.type == Float::f32 ? 4 : 2;
  return static_cast<char*>(rows.data) + element * size;
}

// Every output of a primitive holds a copy of its inputs, which would keep them
// from being donated. The vector passed to eval is left alone: it is in use.
void release_inputs(const Arrays& inputs, Arrays& outputs) {
  for (auto& out : outputs) {
    if (&out.inputs() != &inputs && !out.is_tracer()) {
      out.inputs().clear();
    }
  }
}

// Gives `out` the buffer of the first candidate that can be donated. Safe for
// any kernel here: an element is written after the last read of its place.
void allocate(mx::array& out, std::initializer_list<const mx::array*> from) {
  for (auto* in : from) {
    if (in && in->flags().row_contiguous && mx::is_donatable(*in, out)) {
      out.copy_shared_buffer(*in);
      return;
    }
  }
  out.set_data(mx::allocator::malloc(out.nbytes()));
}

// The rows of a weight or bias to be read in float32 when the task runs.
struct Parameter {
  RowsIn rows;
  int64_t n_rows = 0; // 0: absent
  int64_t width = 0;
  float offset = 0.0f;

  Parameter() = default;
  Parameter(const mx::array& a, float offset)
      : rows(rows_in(a, a.ndim() == 2 ? a.strides(0) : 0)),
        n_rows(a.ndim() == 2 ? a.shape(0) : 1),
        width(a.shape(-1)),
        offset(offset) {}
};

// A parameter in float32 as the kernels take it: its own data, or a copy.
class FloatParameter {
 public:
  explicit FloatParameter(const Parameter& p) : data_(nullptr) {
    if (p.n_rows == 0) {
      return;
    }
    auto pitch = padded(p.width);
    bool padded_rows =
        p.width == pitch && (p.n_rows == 1 || p.rows.row_stride == pitch);
    if (p.rows.type == Float::f32 && p.rows.step == 1 && padded_rows &&
        p.offset == 0.0f) {
      data_ = static_cast<const float*>(p.rows.data);
      return;
    }
    copy_ = std::make_unique_for_overwrite<float[]>(p.n_rows * pitch);
    for (int64_t row = 0; row < p.n_rows; ++row) {
      kernels().load(p.rows, row, p.width, &copy_[row * pitch]);
    }
    if (p.offset != 0.0f) {
      for (int64_t i = 0; i < p.n_rows * pitch; ++i) {
        copy_[i] += p.offset;
      }
    }
    data_ = copy_.get();
  }

  // One row of ones.
  explicit FloatParameter(int64_t width)
      : copy_(std::make_unique_for_overwrite<float[]>(padded(width))) {
    std::fill_n(copy_.get(), padded(width), 1.0f);
    data_ = copy_.get();
  }

  const float* data() const {
    return data_;
  }

 private:
  std::unique_ptr<float[]> copy_;
  const float* data_;
};

FloatParameter weight_or_ones(const Parameter& p, int64_t width) {
  return p.n_rows ? FloatParameter(p) : FloatParameter(width);
}

// A gradient of a parameter, summed over rows in float32.
class ParameterGradient {
 public:
  ParameterGradient(bool wanted, int64_t n_rows, int64_t width)
      : n_rows_(n_rows),
        width_(width) {
    if (wanted) {
      sum_ = std::make_unique<float[]>(2 * size());
    }
  }

  CompensatedSum sum() const {
    auto* sum = sum_.get();
    return sum ? CompensatedSum{sum, sum + size()} : CompensatedSum{};
  }

  void store(const RowsOut& to) const {
    for (int64_t row = 0; sum_ && row < n_rows_; ++row) {
      kernels().store(
          sum_.get() + row * padded(width_),
          width_,
          {at(to, row * width_), to.type});
    }
  }

 private:
  int64_t size() const {
    return n_rows_ * padded(width_);
  }

  int64_t n_rows_;
  int64_t width_;
  std::unique_ptr<float[]> sum_;
};

// Normalises the tensor that starts at these inputs and outputs.
void eval_group(
    const NormSpec& spec,
    const mx::array* inputs,
    mx::array* outputs,
    mx::Stream stream) {
  NormInputs in(spec, inputs);
  auto& normalised = outputs[0];
  auto* sum = spec.residual ? &outputs[1] : nullptr;

  std::vector<const mx::array*> arrays{&in.x};
  if (in.residual) {
    arrays.push_back(in.residual);
  }
  RowRuns runs(arrays);
  auto x = rows_in(in.x, runs.row_stride(0));
  auto residual =
      in.residual ? rows_in(*in.residual, runs.row_stride(1)) : RowsIn{};
  Parameter weight, bias;
  if (in.weight) {
    weight = Parameter(*in.weight, spec.weight_offset);
  }
  if (in.bias) {
    bias = Parameter(*in.bias, 0.0f);
  }

  allocate(normalised, {&in.x, in.residual});
  if (sum) {
    allocate(*sum, {in.residual, &in.x});
  }
  if (normalised.size() == 0) {
    return;
  }

  mx::cpu::get_command_encoder(stream).dispatch(
      [=,
       width = static_cast<int64_t>(normalised.shape(-1)),
       to = rows_out(normalised),
       sum_to = sum ? rows_out(*sum) : RowsOut{}]() {
        auto w = weight_or_ones(weight, width);
        FloatParameter b(bias);
        auto scratch = std::make_unique_for_overwrite<float[]>(padded(width));
        runs.for_each([&](int64_t first, int64_t rows, const auto& offsets) {
          NormJob job{};
          job.first_row = first;
          job.rows = rows;
          job.width = width;
          job.x = x;
          job.x.data = at(x, offsets[0]);
          if (residual.data) {
            job.residual = residual;
            job.residual.data = at(residual, offsets[1]);
            job.sum = {at(sum_to, first * width), sum_to.type};
          }
          job.normalised = {at(to, first * width), to.type};
          job.weight = {w.data(), std::max<int64_t>(weight.n_rows, 1)};
          job.bias = b.data();
          job.centre = spec.centre;
          job.clamp = spec.clamp;
          job.late = spec.rounding == Rounding::Late;
          job.eps = spec.eps;
          job.scratch = scratch.get();
          kernels().norm(job);
        });
      });
}

} // namespace

void Norm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  release_inputs(inputs, outputs);
  auto* out = outputs.data();
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    eval_group(spec_, &inputs[i], out, stream());
    out += spec_.n_outputs();
  }
}

void NormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  release_inputs(inputs, outputs);
  NormVJPInputs in(spec_.norm, inputs.data());

  std::vector<const mx::array*> arrays{&in.s, &in.cotangent};
  if (in.sum_cotangent) {
    arrays.push_back(in.sum_cotangent);
  }
  RowRuns runs(arrays);
  auto s = rows_in(in.s, runs.row_stride(0));
  auto cotangent = rows_in(in.cotangent, runs.row_stride(1));
  auto sum_cotangent = in.sum_cotangent
      ? rows_in(*in.sum_cotangent, runs.row_stride(2))
      : RowsIn{};
  Parameter weight;
  if (in.weight) {
    weight = Parameter(*in.weight, spec_.norm.weight_offset);
  }
  auto n_weight_rows = std::max<int64_t>(weight.n_rows, 1);
  int64_t width = in.s.shape(-1);
  auto size = in.s.size();

  auto next = outputs.begin();
  RowsOut input_to, weight_to, bias_to;
  bool weight_wanted = spec_.weight && in.weight->size() > 0;
  if (spec_.input) {
    allocate(*next, {&in.cotangent, in.sum_cotangent, &in.s});
    input_to = rows_out(*next++);
  }
  if (spec_.weight) {
    allocate(*next, {});
    weight_to = rows_out(*next++);
  }
  if (spec_.bias) {
    allocate(*next, {});
    bias_to = rows_out(*next++);
  }

  mx::cpu::get_command_encoder(stream()).dispatch([=, spec = spec_]() {
    ParameterGradient weight_gradient(weight_wanted, n_weight_rows, width);
    ParameterGradient bias_gradient(spec.bias, 1, width);
    if (size > 0) {
      auto w = weight_or_ones(weight, width);
      auto scratch = std::make_unique_for_overwrite<float[]>(2 * padded(width));
      runs.for_each([&](int64_t first, int64_t rows, const auto& offsets) {
        NormVJPJob job{};
        job.first_row = first;
        job.rows = rows;
        job.width = width;
        job.s = s;
        job.s.data = at(s, offsets[0]);
        job.cotangent = cotangent;
        job.cotangent.data = at(cotangent, offsets[1]);
        if (sum_cotangent.data) {
          job.sum_cotangent = sum_cotangent;
          job.sum_cotangent.data = at(sum_cotangent, offsets[2]);
        }
        if (spec.input) {
          job.input = {at(input_to, first * width), input_to.type};
        }
        job.weight = {w.data(), n_weight_rows};
        job.weight_gradient = weight_gradient.sum();
        job.bias_gradient = bias_gradient.sum();
        job.centre = spec.norm.centre;
        job.clamp = spec.norm.clamp;
        job.eps = spec.norm.eps;
        job.scratch = scratch.get();
        kernels().norm_vjp(job);
      });
    }
    weight_gradient.store(weight_to);
    bias_gradient.store(bias_to);
  });
}

} // namespace mlx_norms
