// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/row_blocks.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/norm/row_groups.h"
#include "csrc/op/node.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

// Normalizes a tensor to the outputs that start here.
void eval_tensor(
    const NormSpec& spec,
    const NormInputs& in,
    array* outputs,
    mx::Stream stream) {
  if (outputs[0].size() == 0) {
    return;
  }
  const auto& x = in.x();
  bool early = spec.rounding == Rounding::Early;
  // Whether MLX's product of an array of this dtype with the operand has it.
  auto rounds = [&](mx::Dtype dtype, Operand operand) {
    return early && in[operand] && product_keeps(dtype, *in[operand]);
  };
  OperandRows rows(in, spec.operands.without({kWeight, kBias}));
  NormJob job{};
  job.width = x.shape(-1);
  job.center = spec.center;
  job.clamp = spec.clamp;
  job.late = !early;
  job.root = root_of(spec);
  job.activation = spec.activation;
  job.gate_first = spec.gate_first;
  job.round_gated = rounds(x.dtype(), kGate);
  job.number = spec.number;
  job.multiplier = spec.multiplier;
  job.factor_of_sum = spec.factor_of_sum;
  job.round_factored = rounds(x.dtype(), kFactor) ||
      (early && spec.is_factored() && !in[kFactor]);
  job.round_result = early && (in[kWeight] || in[kBias]);
  job.round_product = rounds(outputs[0].dtype(), kScale);
  job.normalized = rows_out(outputs[0]);
  if (spec.has(kResidual)) {
    job.sum = rows_out(outputs[1]);
  }
  Parameter weight(in[kWeight], spec.weight_offset);
  Parameter bias(in[kBias], 0.0f);

  auto blocks = blocks_by_threads(x.size() / job.width, job.width);
  bool many = spec.is_modulated() || spec.is_factored() || spec.is_gated() ||
      spec.has(kResidual2) || spec.is_multiplied();
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    auto w = weight_or_ones(weight, job.width);
    FloatParameter b(bias);
    blocks.for_each([&](int, int64_t begin, int64_t end) {
      Scratch scratch(job.width, many ? 4 : 1);
      rows.for_each(
          begin,
          end,
          [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
            auto run = job;
            run.first_row = first_row;
            run.rows = n_rows;
            rows.find(offsets, run.in);
            run.normalized = from(job.normalized, first_row * job.width);
            if (job.sum.data) {
              run.sum = from(job.sum, first_row * job.width);
            }
            run.weight = {w.data(), weight.row_count()};
            run.bias = {b.data(), bias.row_count()};
            run.scratch = scratch.data();
            kernels().norm(run);
          });
    });
  });
}

} // namespace

void Norm::eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s) const {
  if (spec.norm_first) {
    return eval_norm_add_norm(spec, {spec.operands, inputs.data()}, outputs, s);
  }
  if (spec.axis != -1) {
    return eval_channels(spec, {spec.operands, inputs.data()}, outputs[0], s);
  }
  for_each_tensor([&](const Tensor& tensor) {
    eval_tensor(tensor.spec, tensor.in(inputs), &outputs[tensor.output], s);
  });
}

void NormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream stream)
    const {
  if (norm.axis != -1) {
    return eval_channels_vjp(*this, inputs, outputs, stream);
  }
  NormInputs in(norm.operands, inputs.data());
  const auto& x = in.x();
  OperandRows rows(in, norm.operands.without({kWeight}));

  NormVJPJob job{};
  job.width = x.shape(-1);
  job.center = norm.center;
  job.clamp = norm.clamp;
  job.identity = norm.identity;
  job.root = root_of(norm);
  job.gate_first = norm.gate_first;
  job.activation = norm.activation;
  Parameter weight(in[kWeight], norm.weight_offset);

  // No data: not wanted.
  auto gradient = [&](Operand operand) {
    auto* out = wanted.find(operand, outputs.data());
    return out && out->size() > 0 ? rows_out(*out) : RowsOut{};
  };
  job.input = gradient(kX);
  job.gate_gradient = gradient(kGate);
  auto weight_to = gradient(kWeight);
  auto bias_to = gradient(kBias);
  bool weight_wanted = weight_to.data != nullptr;
  bool bias_wanted = bias_to.data != nullptr;

  bool empty = x.size() == 0;
  int64_t n_rows = empty ? 0 : x.size() / job.width;
  auto groups = in[kWeight] ? *row_groups(in[kWeight]->shape(), x.shape())
                            : RowGroups{1, false};
  bool sums = weight_wanted || bias_wanted;
  int scratch_rows = in[kGate] ? 5 : 3;
  // The gradients of some rows, of which the first that uses the weight's first
  // row is `origin`.
  auto compute = [=](int64_t begin,
                     int64_t end,
                     int64_t origin,
                     const Weight& w,
                     CompensatedSum weight_sum,
                     CompensatedSum bias_sum,
                     const Scratch& scratch) {
    rows.for_each(
        begin,
        end,
        [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
          auto run = job;
          run.first_row = first_row - origin;
          run.rows = n_rows;
          rows.find(offsets, run.in);
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
  if (groups.count > 1 && !empty && (groups.adjoin || groups.count == n_rows)) {
    auto of_group = n_rows / groups.count;
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
    mx::cpu::get_command_encoder(stream).dispatch([=]() {
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
  auto blocks = sums ? blocks_of_sums(n_rows, job.width, weight.row_count())
                     : blocks_by_threads(n_rows, job.width);
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
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
