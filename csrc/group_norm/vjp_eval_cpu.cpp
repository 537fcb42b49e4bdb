// Copyright © 2026 mlx_norms contributors
//
// Rows are read twice, chunk by chunk, as forward: for sums, and for x's
// gradient.

#include "csrc/common/derivatives.h"
#include "csrc/group_norm/cpu_channels.h"
#include "csrc/group_norm/cpu_kernels.h"
#include "csrc/group_norm/cpu_rows.h"
#include "csrc/group_norm/cpu_work.h"
#include "csrc/group_norm/small_groups.h"
#include "csrc/op/node.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

// What is known of the arrays before they have values.
struct VJPArrays {
  GroupRows rows; // x and the cotangent
  Parameter weight, bias, mean, rest, variance;
  RowsOut input;
  float* sums[2]; // of the bias and of the weight, for each sample
};

class VJPWork final : public GroupWork {
 public:
  VJPWork(
      const GroupNormVJPSpec& vjp,
      const GroupGeometry& of,
      const VJPArrays& arrays)
      : GroupWork(
            of,
            kVJPRows,
            vjp.sums || vjp.takes_means() ? 2 : 0,
            /* applies= */ vjp.input),
        vjp_(vjp),
        arrays_(arrays),
        takes_means_(vjp.takes_means()),
        weight_(weight_or_ones(arrays.weight, of.channels)),
        bias_(arrays.bias),
        no_bias_(absent_bias(arrays.bias, of)) {}

 private:
  void prepare(int64_t sample, float* vectors) const override {
    FloatParameter means(arrays_.mean.only(sample));
    FloatParameter rests(arrays_.rest.only(sample));
    FloatParameter variances(arrays_.variance.only(sample));
    auto eps = vjp_.norm.eps;
    set_statistics(
        of, means.data(), rests.data(), variances.data(), eps, vectors);
  }

  void add_up(int64_t begin, int64_t end, const float* vectors, float* partials)
      const override {
    const auto& rows = arrays_.rows;
    auto add = [&](int64_t row, int64_t count, const auto& given) {
      if (of.along_channels()) {
        bool first = row == begin;
        return add_along(row, count, first, given, vectors, partials);
      }
      auto job = job_of(given, count, {0, of.channels, vectors, of.pitch});
      job.before = row - begin;
      job.bias_sums = of.row(partials, 0);
      job.weight_sums = of.row(partials, 1);
      group_kernels().vjp_sums(job);
    };
    rows.for_each(begin, end, rows.scratch(), add);
  }

  // Along the channels: adds rows to the sums of a sample and, in double, to
  // two of each group.
  void add_along(
      int64_t row,
      int64_t count,
      bool first,
      const std::vector<RowsIn>& given,
      const float* vectors,
      float* partials) const {
    auto* groups = as_doubles(partials);
    if (first && takes_means_) {
      std::fill_n(groups, 2 * of.groups, 0.0);
    }
    for_channels(of, vectors, kForwardRows, [&](const ChannelVectors& some) {
      Scratch own(some.count, 2);
      auto job = job_of(given, count, some);
      job.bias_sums = own.data();
      job.weight_sums = own.data() + padded(some.count);
      group_kernels().vjp_sums(job);
      for (int i = 0; i < 2; ++i) {
        auto* sum = i == 0 ? job.bias_sums : job.weight_sums;
        if (takes_means_) {
          auto* to = groups + i * of.groups;
          add_weighted(of, sum, job.weight, some.first, some.count, to);
        }
        if (vjp_.sums) {
          auto* to = sums_of(i, row / of.positions) + some.first;
          for (int64_t c = 0; c < some.count; ++c) {
            to[c] = first ? sum[c] : to[c] + sum[c];
          }
        }
      }
    });
  }

  void merge(int64_t sample, const float* partials, float* vectors)
      const override {
    std::vector<float> means(takes_means_ ? 2 * of.groups : 0);
    if (of.along_channels()) {
      for (size_t i = 0; i < means.size(); ++i) {
        means[i] = as_doubles(partials)[i] / of.values();
      }
    } else {
      merge_gradients(
          of,
          partials,
          weight_.data(),
          sums_of(0, sample),
          sums_of(1, sample),
          takes_means_ ? means.data() : nullptr);
    }
    if (takes_means_) {
      of.set(of.row(vectors, kMeanWg), [&](int64_t i) { return means[i]; });
      of.set(of.row(vectors, kMeanWgn), [&](int64_t i) {
        return means[of.groups + i];
      });
    }
  }

  void apply(int64_t begin, int64_t end, const float* vectors) const override {
    const auto& rows = arrays_.rows;
    auto scratch = rows.scratch();
    rows.for_each(
        begin,
        end,
        scratch,
        [&](int64_t row, int64_t count, const auto& given) {
          rows.write(
              arrays_.input, row, count, scratch, [&](const RowsOut& to) {
                write_input(count, given, to, vectors);
              });
        });
  }

  void write_input(
      int64_t count,
      const std::vector<RowsIn>& given,
      const RowsOut& to,
      const float* vectors) const {
    for_channels(of, vectors, kVJPRows, [&](const ChannelVectors& some) {
      auto job = job_of(given, count, some);
      job.input = from(to, some.first);
      job.input_stride = of.channels;
      if (takes_means_) {
        job.mean_wgn = some.row(kMeanWgn);
        job.mean_wg = some.row(kMeanWg);
      }
      group_kernels().vjp_input(job);
    });
  }

  // What both kernels are given.
  GroupVJPJob job_of(
      const std::vector<RowsIn>& given,
      int64_t count,
      const ChannelVectors& some) const {
    auto* bias = bias_.data() ? bias_.data() : no_bias_.data();
    GroupVJPJob job{};
    job.channels = some.count;
    job.rows = count;
    job.x = from(given[0], some.first);
    job.cotangent = from(given[1], some.first);
    job.mean = some.row(kMeans);
    job.rstd = some.row(kRstd);
    job.shift = some.row(kOffset);
    job.weight = weight_.data() + some.first;
    job.bias = bias + some.first;
    job.activation = vjp_.norm.activation;
    return job;
  }

  // Null if they are not wanted.
  float* sums_of(int i, int64_t sample) const {
    return vjp_.sums ? arrays_.sums[i] + sample * of.channels : nullptr;
  }

  const GroupNormVJPSpec& vjp_;
  const VJPArrays& arrays_;
  bool takes_means_;
  FloatParameter weight_, bias_;
  std::vector<float> no_bias_;
};

} // namespace

void GroupNormVJP::eval_cpu(
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) const {
  const auto& norm = spec.norm;
  NormInputs in(norm.operands, inputs.data());
  bool empty = in.x().size() == 0;
  float* sums[2] = {};
  for (int i = 0; spec.sums && i < 2; ++i) {
    auto& out = outputs[spec.input + i];
    sums[i] = out.data<float>();
    if (empty) {
      std::fill_n(sums[i], out.size(), 0.0f);
    }
  }
  if (empty) {
    return;
  }
  auto of = geometry_of(norm, in.x());
  if (!norm.running() && are_small_groups(of)) {
    return vjp_of_small_groups(spec, of, inputs, outputs, stream);
  }
  // Forward's statistics, of each sample, or those given for all.
  auto statistic = [&](int i, const array* given) {
    return Parameter(norm.running() ? given : &inputs[inputs.size() - 4 + i]);
  };
  VJPArrays arrays{
      GroupRows({&in.x(), &inputs.back()}, spec.input ? &outputs[0] : nullptr),
      Parameter(in[kWeight]),
      Parameter(in[kBias]),
      statistic(0, in[kMean]),
      statistic(1, nullptr),
      statistic(2, in[kVariance]),
      spec.input ? rows_out(outputs[0]) : RowsOut(),
      {sums[0], sums[1]}};
  mx::cpu::get_command_encoder(stream).dispatch(
      [spec = spec, of, arrays]() { VJPWork(spec, of, arrays).run(); });
}

} // namespace mlx_norms
