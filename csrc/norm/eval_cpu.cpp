// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/row_blocks.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/norm/groups/groups.h"
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
  OperandRows rows(in, spec.operands.without({kWeight, kBias}));
  NormJob job{options_of(spec)};
  job.width = x.shape(-1);
  job.normalized = rows_out(outputs[0]);
  if (spec.has(kResidual)) {
    job.sum = rows_out(outputs[1]);
  }
  Parameter weight(in[kWeight], spec.weight_offset);
  Parameter bias(in[kBias], 0.0f);

  auto blocks = blocks_by_threads(x.size() / job.width, job.width);
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    auto w = weight_or_ones(weight, job.width);
    FloatParameter b(bias);
    blocks.for_each([&](int, int64_t begin, int64_t end) {
      Scratch scratch(job.width, scratch_rows(job.width));
      rows.for_each(
          begin,
          end,
          [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
            auto run = job;
            run.first_row = first_row;
            run.rows = n_rows;
            rows.find(offsets, run.in);
            run.normalized = from(job.normalized, first_row * job.width);
            run.sum = from(job.sum, first_row * job.width);
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
  if (spec.grouped) {
    return eval_groups(spec, {spec.operands, inputs.data()}, outputs, s);
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
  if (norm.grouped) {
    return eval_groups_vjp(*this, inputs, outputs, stream);
  }
  if (norm.axis != -1) {
    return eval_channels_vjp(*this, inputs, outputs, stream);
  }
  NormInputs in(norm.operands, inputs.data());
  const auto& x = in.x();
  OperandRows rows(in, norm.operands.without({kWeight}));
  NormVJPJob job{options_of(norm)};
  job.width = x.shape(-1);
  for (auto operand : wanted) {
    auto& out = outputs[wanted.index_of(operand)];
    job.out[operand] = out.size() > 0 ? rows_out(out) : RowsOut{};
  }
  Parameter weight(in[kWeight], norm.weight_offset);
  bool wants_weight = job.out[kWeight].data, wants_bias = job.out[kBias].data;

  int64_t n_rows = x.size() == 0 ? 0 : x.size() / job.width;
  auto groups = groups_of(inputs);
  // Whether each group's rows are taken by themselves, with a weight of one
  // row. Otherwise all rows are one group.
  bool apart = groups.count > 1 && n_rows > 0 &&
      (groups.adjoin || groups.count == n_rows);
  int64_t count = apart ? groups.count : 1;
  int64_t of_group = n_rows / count;
  int64_t weight_rows = apart ? 1 : weight.row_count();
  auto blocks = wants_weight || wants_bias
      ? blocks_of_sums(of_group, job.width, weight_rows)
      : blocks_by_threads(of_group, job.width);

  auto compute_group = [=](int64_t group, auto for_each_block) {
    auto w = weight_or_ones(apart ? weight.only(group) : weight, job.width);
    auto gradient = [&](bool wanted) {
      return ParameterGradient(wanted, weight_rows, job.width, blocks.count());
    };
    auto of_weight = gradient(wants_weight), of_bias = gradient(wants_bias);
    auto origin = group * of_group;
    auto compute = [&](int block, int64_t begin, int64_t end) {
      Scratch scratch(job.width, kVJPScratch * scratch_rows(job.width));
      rows.for_each(
          origin + begin,
          origin + end,
          [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
            auto run = job;
            run.first_row = first_row - origin;
            run.rows = n_rows;
            rows.find(offsets, run.in);
            for (auto operand : {kX, kGate}) {
              run.out[operand] = from(job.out[operand], first_row * job.width);
            }
            run.weight = {w.data(), weight_rows};
            run.weight_gradient = of_weight.block(block);
            run.bias_gradient = of_bias.block(block);
            run.scratch = scratch.data();
            kernels().norm_vjp(run);
          });
    };
    if (n_rows > 0) {
      for_each_block(compute);
    }
    of_weight.store(from(job.out[kWeight], group * job.width));
    of_bias.store(from(job.out[kBias], group * job.width));
  };
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    if (blocks.count() > 1) { // which threads share
      for (int64_t group = 0; group < count; ++group) {
        compute_group(group, [&](auto f) { blocks.for_each(f); });
      }
      return;
    }
    blocks_by_threads(count, of_group * job.width)
        .for_each([&](int, int64_t begin, int64_t end) {
          for (auto group = begin; group < end; ++group) {
            compute_group(group, [&](auto f) { f(0, 0, of_group); });
          }
        });
  });
}

} // namespace mlx_norms
