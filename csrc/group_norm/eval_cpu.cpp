// Copyright © 2026 mlx_norms contributors
//
// x is read twice, chunk by chunk: for sums, which are merged in an order that
// does not depend on the number of threads, and for the results.

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
struct NormArrays {
  GroupRows summed, normalized;
  Parameter weight, bias, mean, variance;
  RowsOut y;
  float* statistics[3]; // mean, rest and variance, unless they are given
};

class NormWork final : public GroupWork {
 public:
  NormWork(
      const GroupNormSpec& spec,
      const GroupGeometry& of,
      const NormArrays& arrays)
      : GroupWork(of, kForwardRows, spec.running() ? 0 : 3),
        spec_(spec),
        arrays_(arrays),
        weight_(weight_or_ones(arrays.weight, of.channels)),
        bias_(arrays.bias),
        mean_(arrays.mean),
        variance_(arrays.variance),
        no_bias_(absent_bias(arrays.bias, of)) {}

 private:
  void prepare(int64_t, float* vectors) const override {
    if (spec_.running()) {
      auto *mean = mean_.data(), *variance = variance_.data();
      set_statistics(of, mean, nullptr, variance, spec_.eps, vectors);
    }
  }

  void add_up(int64_t begin, int64_t end, const float*, float* partials)
      const override {
    const auto& x = arrays_.summed;
    auto add = [&](int64_t row, int64_t count, const auto& rows) {
      if (of.along_channels()) {
        auto* to = as_doubles(partials);
        return add_along_channels(of, rows[0], count, row - begin, to);
      }
      group_kernels().statistics(
          {of.channels,
           count,
           row - begin,
           rows[0],
           of.row(partials, 0),
           of.row(partials, 1),
           of.row(partials, 2)});
    };
    x.for_each(begin, end, x.scratch(), add);
  }

  void merge(int64_t sample, const float* partials, float* vectors)
      const override {
    float* at[3];
    for (int i = 0; i < 3; ++i) {
      at[i] = arrays_.statistics[i] + sample * of.groups;
    }
    if (of.along_channels()) {
      finish_along_channels(of, as_doubles(partials), at[0], at[1], at[2]);
    } else {
      merge_statistics(of, partials, at[0], at[1], at[2]);
    }
    set_statistics(of, at[0], at[1], at[2], spec_.eps, vectors);
  }

  void apply(int64_t begin, int64_t end, const float* vectors) const override {
    const auto& x = arrays_.normalized;
    auto scratch = x.scratch();
    x.for_each(
        begin, end, scratch, [&](int64_t row, int64_t count, const auto& rows) {
          x.write(arrays_.y, row, count, scratch, [&](const RowsOut& to) {
            normalize(count, rows[0], to, vectors);
          });
        });
  }

  void normalize(
      int64_t count,
      const RowsIn& x,
      const RowsOut& to,
      const float* vectors) const {
    auto* bias = bias_.data() ? bias_.data() : no_bias_.data();
    for_channels(of, vectors, kForwardRows, [&](const ChannelVectors& some) {
      group_kernels().normalize(
          {some.count,
           count,
           from(x, some.first),
           from(to, some.first),
           of.channels,
           some.row(kMeans),
           some.row(kRstd),
           some.row(kOffset),
           weight_.data() + some.first,
           bias + some.first,
           spec_.activation});
    });
  }

  const GroupNormSpec& spec_;
  const NormArrays& arrays_;
  FloatParameter weight_, bias_, mean_, variance_;
  std::vector<float> no_bias_;
};

} // namespace

void GroupNorm::eval_cpu(
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) const {
  NormInputs in(spec.operands, inputs.data());
  bool empty = in.x().size() == 0;
  float* statistics[3] = {};
  for (size_t i = 1; i < outputs.size(); ++i) {
    statistics[i - 1] = outputs[i].data<float>();
    if (empty) {
      std::fill_n(statistics[i - 1], outputs[i].size(), NAN);
    }
  }
  if (empty) {
    return;
  }
  auto of = geometry_of(spec, in.x());
  if (!spec.running() && are_small_groups(of)) {
    return norm_small_groups(spec, of, inputs, outputs, stream);
  }
  NormArrays arrays{
      GroupRows({&in.x()}, nullptr),
      GroupRows({&in.x()}, &outputs[0]),
      Parameter(in[kWeight]),
      Parameter(in[kBias]),
      Parameter(in[kMean]),
      Parameter(in[kVariance]),
      rows_out(outputs[0]),
      {statistics[0], statistics[1], statistics[2]}};
  mx::cpu::get_command_encoder(stream).dispatch(
      [spec = spec, of, arrays]() { NormWork(spec, of, arrays).run(); });
}

} // namespace mlx_norms
