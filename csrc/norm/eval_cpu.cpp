// Copyright © 2026 mlx_norms contributors

#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/cpu/memory.h"
#include "csrc/cpu/row_blocks.h"
#include "csrc/cpu/row_runs.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/norm/modulation.h"
#include "csrc/norm/primitive.h"
#include "csrc/norm/row_groups.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

Root root_of(const NormSpec& spec) {
  return {spec.eps, spec.l2, spec.eps_bounds};
}

// Normalizes the tensor whose inputs and outputs start here.
void eval_group(
    const NormSpec& spec,
    const mx::array* inputs,
    mx::array* outputs,
    mx::Stream stream) {
  NormInputs in(spec, inputs);
  auto view = [&](const mx::array* a) {
    return a ? OptionalArray(broadcast_view(*a, in.x.shape())) : std::nullopt;
  };
  auto scale = view(in.scale);
  auto shift = view(in.shift);
  auto factor = view(in.factor);
  auto gate = view(in.gate);
  RowRuns runs(
      {&in.x,
       in.residual,
       scale ? &*scale : nullptr,
       shift ? &*shift : nullptr,
       factor ? &*factor : nullptr,
       gate ? &*gate : nullptr});

  NormJob job{};
  job.width = in.x.shape(-1);
  job.x = rows_in(in.x, runs.row_stride(0));
  job.center = spec.center;
  job.clamp = spec.clamp;
  job.late = spec.rounding == Rounding::Late;
  job.root = root_of(spec);
  if (in.residual) {
    job.residual = rows_in(*in.residual, runs.row_stride(1));
  }
  if (scale) {
    job.scale = rows_in(*scale, runs.row_stride(2));
  }
  if (shift) {
    job.shift = rows_in(*shift, runs.row_stride(3));
  }
  if (factor) {
    job.factor = rows_in(*factor, runs.row_stride(4));
  }
  if (gate) {
    job.gate = rows_in(*gate, runs.row_stride(5));
  }
  job.activation = spec.activation;
  job.gate_first = spec.gate_first;
  job.round_gated =
      !job.late && in.gate && product_keeps(in.x.dtype(), *in.gate);
  job.number = spec.number;
  job.factor_of_sum = spec.factor_of_sum;
  job.round_factored = !job.late && spec.is_factored() &&
      (!in.factor || product_keeps(in.x.dtype(), *in.factor));
  Parameter weight, bias;
  if (in.weight) {
    weight = Parameter(*in.weight, spec.weight_offset);
  }
  if (in.bias) {
    bias = Parameter(*in.bias, 0.0f);
  }

  allocate(outputs[0], {&in.x, in.residual, in.gate});
  job.normalized = rows_out(outputs[0]);
  job.round_result = !job.late && (in.weight || in.bias);
  job.round_product =
      !job.late && in.scale && product_keeps(outputs[0].dtype(), *in.scale);
  if (spec.residual) {
    allocate(outputs[1], {in.residual, &in.x});
    job.sum = rows_out(outputs[1]);
  }
  if (outputs[0].size() == 0) {
    return;
  }

  auto blocks = blocks_by_threads(in.x.size() / job.width, job.width);
  bool many = spec.is_modulated() || spec.is_factored() || spec.is_gated();
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    auto w = weight_or_ones(weight, job.width);
    FloatParameter b(bias);
    blocks.for_each([&](int, int64_t begin, int64_t end) {
      Scratch scratch(job.width, many ? 4 : 1);
      runs.for_each(
          begin,
          end,
          [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
            auto run = job;
            run.first_row = first_row;
            run.rows = n_rows;
            run.x = from(job.x, offsets[0]);
            run.normalized = from(job.normalized, first_row * job.width);
            if (job.residual.data) {
              run.residual = from(job.residual, offsets[1]);
              run.sum = from(job.sum, first_row * job.width);
            }
            if (job.scale.data) {
              run.scale = from(job.scale, offsets[2]);
            }
            if (job.shift.data) {
              run.shift = from(job.shift, offsets[3]);
            }
            if (job.factor.data) {
              run.factor = from(job.factor, offsets[4]);
            }
            if (job.gate.data) {
              run.gate = from(job.gate, offsets[5]);
            }
            run.weight = {w.data(), weight.row_count()};
            run.bias = b.data();
            run.scratch = scratch.data();
            kernels().norm(run);
          });
    });
  });
}

} // namespace

void Norm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  thread_count(); // may throw, so before any work is dispatched
  release_inputs(inputs, outputs);
  auto* out = outputs.data();
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    eval_group(spec_, &inputs[i], out, stream());
    out += spec_.n_outputs();
  }
}

void NormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  thread_count(); // as above
  release_inputs(inputs, outputs);
  NormVJPInputs in(spec_.norm, inputs.data());
  RowRuns runs({&in.s, &in.cotangent, in.sum_cotangent, in.gate});

  NormVJPJob job{};
  job.width = in.s.shape(-1);
  job.s = rows_in(in.s, runs.row_stride(0));
  job.cotangent = rows_in(in.cotangent, runs.row_stride(1));
  job.center = spec_.norm.center;
  job.clamp = spec_.norm.clamp;
  job.identity = spec_.norm.identity;
  job.root = root_of(spec_.norm);
  if (in.sum_cotangent) {
    job.sum_cotangent = rows_in(*in.sum_cotangent, runs.row_stride(2));
  }
  if (in.gate) {
    job.gate = rows_in(*in.gate, runs.row_stride(3));
  }
  job.gate_first = spec_.norm.gate_first;
  job.activation = spec_.norm.activation;
  Parameter weight;
  if (in.weight) {
    weight = Parameter(*in.weight, spec_.norm.weight_offset);
  }

  auto next = outputs.begin();
  RowsOut weight_to, bias_to;
  bool weight_wanted = spec_.weight && in.weight->size() > 0;
  bool bias_wanted = spec_.bias && outputs.back().size() > 0;
  if (spec_.input) {
    allocate(*next, {&in.cotangent, in.sum_cotangent, &in.s});
    job.input = rows_out(*next++);
  }
  if (spec_.gate) {
    allocate(*next, {in.gate});
    job.gate_gradient = rows_out(*next++);
  }
  if (spec_.weight) {
    allocate(*next);
    weight_to = rows_out(*next++);
  }
  if (spec_.bias) {
    allocate(*next);
    bias_to = rows_out(*next++);
  }

  bool empty = in.s.size() == 0;
  int64_t rows = empty ? 0 : in.s.size() / job.width;
  auto groups = in.weight ? *row_groups(in.weight->shape(), in.s.shape())
                          : RowGroups{1, false};
  bool sums = weight_wanted || bias_wanted;
  int scratch_rows = in.gate ? 5 : 3;
  // The gradients of some rows, of which the first that uses the weight's first
  // row is `origin`.
  auto compute = [=](int64_t begin,
                     int64_t end,
                     int64_t origin,
                     const Weight& w,
                     CompensatedSum weight_sum,
                     CompensatedSum bias_sum,
                     const Scratch& scratch) {
    runs.for_each(
        begin,
        end,
        [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
          auto run = job;
          run.first_row = first_row - origin;
          run.rows = n_rows;
          run.s = from(job.s, offsets[0]);
          run.cotangent = from(job.cotangent, offsets[1]);
          if (job.sum_cotangent.data) {
            run.sum_cotangent = from(job.sum_cotangent, offsets[2]);
          }
          if (job.gate.data) {
            run.gate = from(job.gate, offsets[3]);
          }
          if (job.gate_gradient.data) {
            run.gate_gradient = from(job.gate_gradient, first_row * job.width);
          }
          if (job.input.data) {
            run.input = from(job.input, first_row * job.width);
          }
          run.weight = w;
          run.weight_gradient = weight_sum;
          run.bias_gradient = bias_sum;
          run.scratch = scratch.data();
          kernels().norm_vjp(run);
        });
  };
  if (groups.count > 1 && !empty && (groups.adjoin || groups.count == rows)) {
    auto of_group = rows / groups.count;
    auto blocks = sums ? blocks_of_sums(of_group, job.width, 1)
                       : blocks_by_threads(of_group, job.width);
    auto compute_group = [=](int64_t group, auto for_each_block) {
      FloatParameter w(weight.only(group));
      ParameterGradient of_weight(weight_wanted, 1, job.width, blocks.count());
      ParameterGradient of_bias(bias_wanted, 1, job.width, blocks.count());
      auto origin = group * of_group;
      for_each_block([&](int block, int64_t begin, int64_t end) {
        compute(
            origin + begin,
            origin + end,
            origin,
            {w.data(), 1},
            of_weight.block(block),
            of_bias.block(block),
            Scratch(job.width, scratch_rows));
      });
      if (weight_wanted) {
        of_weight.store(from(weight_to, group * job.width));
      }
      if (bias_wanted) {
        of_bias.store(from(bias_to, group * job.width));
      }
    };
    mx::cpu::get_command_encoder(stream()).dispatch([=]() {
      if (blocks.count() > 1) { // which threads share
        for (int64_t group = 0; group < groups.count; ++group) {
          compute_group(group, [&](auto f) { blocks.for_each(f); });
        }
        return;
      }
      blocks_by_threads(groups.count, of_group * job.width)
          .for_each([&](int, int64_t begin, int64_t end) {
            for (auto group = begin; group < end; ++group) {
              compute_group(group, [&](auto f) { f(0, 0, of_group); });
            }
          });
    });
    return;
  }
  auto blocks = sums ? blocks_of_sums(rows, job.width, weight.row_count())
                     : blocks_by_threads(rows, job.width);
  mx::cpu::get_command_encoder(stream()).dispatch([=]() {
    ParameterGradient weight_gradient(
        weight_wanted, weight.row_count(), job.width, blocks.count());
    ParameterGradient bias_gradient(
        bias_wanted, weight.row_count(), job.width, blocks.count());
    if (!empty) {
      auto w = weight_or_ones(weight, job.width);
      blocks.for_each([&](int block, int64_t begin, int64_t end) {
        compute(
            begin,
            end,
            0,
            {w.data(), weight.row_count()},
            weight_gradient.block(block),
            bias_gradient.block(block),
            Scratch(job.width, scratch_rows));
      });
    }
    weight_gradient.store(weight_to);
    bias_gradient.store(bias_to);
  });
}

} // namespace mlx_norms
