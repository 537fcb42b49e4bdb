// Copyright © 2026 mlx_norms contributors

#include <memory>

#include "csrc/cpu/isa.h"
#include "csrc/cpu/parameters.h"
#include "csrc/norm.h"
#include "csrc/outputs.h"
#include "csrc/row_runs.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

// Normalises the tensor that starts at these inputs and outputs.
void eval_group(
    const NormSpec& spec,
    const mx::array* inputs,
    mx::array* outputs,
    mx::Stream stream) {
  NormInputs in(spec, inputs);
  std::vector<const mx::array*> rows{&in.x};
  if (in.residual) {
    rows.push_back(in.residual);
  }
  RowRuns runs(rows);

  NormJob job{};
  job.width = in.x.shape(-1);
  job.x = rows_in(in.x, runs.row_stride(0));
  job.centre = spec.centre;
  job.clamp = spec.clamp;
  job.late = spec.rounding == Rounding::Late;
  job.eps = spec.eps;
  if (in.residual) {
    job.residual = rows_in(*in.residual, runs.row_stride(1));
  }
  Parameter weight, bias;
  if (in.weight) {
    weight = Parameter(*in.weight, spec.weight_offset);
  }
  if (in.bias) {
    bias = Parameter(*in.bias, 0.0f);
  }

  allocate(outputs[0], stream, {&in.x, in.residual});
  job.normalised = rows_out(outputs[0]);
  if (spec.residual) {
    allocate(outputs[1], stream, {in.residual, &in.x});
    job.sum = rows_out(outputs[1]);
  }
  if (outputs[0].size() == 0) {
    return;
  }

  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    auto w = weight_or_ones(weight, job.width);
    FloatParameter b(bias);
    auto scratch = std::make_unique_for_overwrite<float[]>(padded(job.width));
    runs.for_each([&](int64_t first_row, int64_t n_rows, const auto& offsets) {
      auto run = job;
      run.first_row = first_row;
      run.rows = n_rows;
      run.x = from(job.x, offsets[0]);
      run.normalised = from(job.normalised, first_row * job.width);
      if (job.residual.data) {
        run.residual = from(job.residual, offsets[1]);
        run.sum = from(job.sum, first_row * job.width);
      }
      run.weight = {w.data(), weight.row_count()};
      run.bias = b.data();
      run.scratch = scratch.get();
      kernels().norm(run);
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
  std::vector<const mx::array*> rows{&in.s, &in.cotangent};
  if (in.sum_cotangent) {
    rows.push_back(in.sum_cotangent);
  }
  RowRuns runs(rows);

  NormVJPJob job{};
  job.width = in.s.shape(-1);
  job.s = rows_in(in.s, runs.row_stride(0));
  job.cotangent = rows_in(in.cotangent, runs.row_stride(1));
  job.centre = spec_.norm.centre;
  job.clamp = spec_.norm.clamp;
  job.eps = spec_.norm.eps;
  if (in.sum_cotangent) {
    job.sum_cotangent = rows_in(*in.sum_cotangent, runs.row_stride(2));
  }
  Parameter weight;
  if (in.weight) {
    weight = Parameter(*in.weight, spec_.norm.weight_offset);
  }

  auto next = outputs.begin();
  RowsOut weight_to, bias_to;
  bool weight_wanted = spec_.weight && in.weight->size() > 0;
  bool bias_wanted = spec_.bias;
  if (spec_.input) {
    allocate(*next, stream(), {&in.cotangent, in.sum_cotangent, &in.s});
    job.input = rows_out(*next++);
  }
  if (spec_.weight) {
    allocate(*next, stream(), {});
    weight_to = rows_out(*next++);
  }
  if (spec_.bias) {
    allocate(*next, stream(), {});
    bias_to = rows_out(*next++);
  }

  bool empty = in.s.size() == 0;
  mx::cpu::get_command_encoder(stream()).dispatch([=]() {
    ParameterGradient weight_gradient(
        weight_wanted, weight.row_count(), job.width);
    ParameterGradient bias_gradient(bias_wanted, 1, job.width);
    if (!empty) {
      auto w = weight_or_ones(weight, job.width);
      auto scratch =
          std::make_unique_for_overwrite<float[]>(2 * padded(job.width));
      runs.for_each(
          [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
            auto run = job;
            run.first_row = first_row;
            run.rows = n_rows;
            run.s = from(job.s, offsets[0]);
            run.cotangent = from(job.cotangent, offsets[1]);
            if (job.sum_cotangent.data) {
              run.sum_cotangent = from(job.sum_cotangent, offsets[2]);
            }
            if (job.input.data) {
              run.input = from(job.input, first_row * job.width);
            }
            run.weight = {w.data(), weight.row_count()};
            run.weight_gradient = weight_gradient.sum();
            run.bias_gradient = bias_gradient.sum();
            run.scratch = scratch.get();
            kernels().norm_vjp(run);
          });
    }
    weight_gradient.store(weight_to);
    bias_gradient.store(bias_to);
  });
}

} // namespace mlx_norms
