// Copyright © 2026 mlx_norms contributors
//
// x is read twice, chunk by chunk: for sums, which are merged in an order that
// does not depend on the number of threads, and for the results.

#include <cmath>

#include "csrc/common/outputs.h"
#include "csrc/cpu/memory.h"
#include "csrc/group_norm/cpu_kernels.h"
#include "csrc/group_norm/cpu_rows.h"
#include "csrc/group_norm/cpu_statistics.h"
#include "csrc/group_norm/cpu_work.h"
#include "csrc/group_norm/primitive.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

// The rows of a sample in a GroupWork's vectors: see GroupNormalizeJob and
// GroupVJPJob.
enum Row { kMean, kRstd, kShift, kAlong, kLess };
constexpr int kForwardRows = kAlong, kVJPRows = kLess + 1;

// Writes what a sample's statistics of each group make of each channel.
void set_statistics(
    const GroupGeometry& of,
    const float* means,
    const float* rests, // null: zeros
    const float* variances,
    float eps,
    float* vectors) {
  auto* rstd = of.row(vectors, kRstd);
  of.spread(of.row(vectors, kMean), [&](int64_t i) { return means[i]; });
  of.spread(
      rstd, [&](int64_t i) { return 1.0f / std::sqrt(variances[i] + eps); });
  of.spread(of.row(vectors, kShift), [&](int64_t i) {
    return rests ? -rests[i] * rstd[of.first_channel(i)] : -0.0f;
  });
}

// Of an x that is not empty.
GroupGeometry geometry_of(const GroupNormSpec& spec, const mx::array& x) {
  int64_t samples = 1;
  for (int i = 0; i < spec.sample_axes; ++i) {
    samples *= x.shape(i);
  }
  int64_t channels = x.shape(-1);
  int64_t positions = x.size() / (samples * channels);
  return {samples, positions, channels, spec.groups_of(x), spec.strided};
}

Parameter parameter_of(const mx::array* a) {
  return a ? Parameter(*a, 0.0f) : Parameter();
}

// What stands for an absent bias: minus zeros, which change nothing.
std::vector<float> absent_bias(const Parameter& bias, const GroupGeometry& of) {
  return std::vector<float>(bias.n_rows ? 0 : of.pitch, -0.0f);
}

} // namespace

void GroupNorm::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  check_shapes(inputs);
  thread_count(); // may throw, so before any work is dispatched
  release_inputs(inputs, outputs);
  GroupNormInputs in(spec_, inputs.data());
  bool empty = in.x.size() == 0;
  allocate(outputs[0], {&in.x});
  auto y = rows_out(outputs[0]);
  float* statistics[3] = {};
  for (size_t i = 1; i < outputs.size(); ++i) {
    allocate(outputs[i]);
    statistics[i - 1] = outputs[i].data<float>();
    if (empty) {
      std::fill_n(statistics[i - 1], outputs[i].size(), NAN);
    }
  }
  if (empty) {
    return;
  }
  auto of = geometry_of(spec_, in.x);
  GroupRows summed({&in.x}, nullptr), normalized({&in.x}, &outputs[0]);
  auto weight = parameter_of(in.weight), bias = parameter_of(in.bias);
  auto given_mean = parameter_of(in.mean);
  auto given_variance = parameter_of(in.variance);
  mx::cpu::get_command_encoder(stream()).dispatch([=, spec = spec_]() {
    auto w = weight_or_ones(weight, of.channels);
    FloatParameter b(bias), mean(given_mean), var(given_variance);
    auto no_bias = absent_bias(bias, of);
    GroupWork work;
    work.vector_rows = kForwardRows;
    work.partial_rows = spec.running ? 0 : 3;
    work.prepare = [&](int64_t, float* vectors) {
      if (spec.running) {
        set_statistics(of, mean.data(), nullptr, var.data(), spec.eps, vectors);
      }
    };
    work.add_up =
        [&](int64_t begin, int64_t end, const float*, float* partials) {
          summed.for_each(
              begin,
              end,
              summed.scratch(),
              [&](int64_t row, int64_t count, const auto& rows) {
                group_kernels().statistics(
                    {of.channels,
                     count,
                     row - begin,
                     rows[0],
                     of.row(partials, 0),
                     of.row(partials, 1),
                     of.row(partials, 2)});
              });
        };
    work.merge = [&](int64_t sample, const float* partials, float* vectors) {
      float* at[3];
      for (int i = 0; i < 3; ++i) {
        at[i] = statistics[i] + sample * of.groups;
      }
      merge_statistics(of, partials, at[0], at[1], at[2]);
      set_statistics(of, at[0], at[1], at[2], spec.eps, vectors);
    };
    work.apply = [&](int64_t begin, int64_t end, const float* vectors) {
      auto scratch = normalized.scratch();
      normalized.for_each(
          begin,
          end,
          scratch,
          [&](int64_t row, int64_t count, const auto& rows) {
            normalized.write(y, row, count, scratch, [&](const auto& to) {
              group_kernels().normalize(
                  {of.channels,
                   count,
                   rows[0],
                   to,
                   of.row(vectors, kMean),
                   of.row(vectors, kRstd),
                   of.row(vectors, kShift),
                   w.data(),
                   b.data() ? b.data() : no_bias.data(),
                   spec.activation});
            });
          });
    };
    work.run(of);
  });
}

void GroupNormVJP::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  check_shapes(inputs);
  thread_count(); // as above
  release_inputs(inputs, outputs);
  const auto& spec = spec_.norm;
  GroupNormInputs in(spec, inputs.data());
  bool empty = in.x.size() == 0;
  RowsOut input;
  if (spec_.input) {
    allocate(outputs[0], {&inputs.back(), &in.x});
    input = rows_out(outputs[0]);
  }
  float* sums[2] = {};
  for (int i = 0; spec_.sums && i < 2; ++i) {
    auto& out = outputs[spec_.input + i];
    allocate(out);
    sums[i] = out.data<float>();
    if (empty) {
      std::fill_n(sums[i], out.size(), 0.0f);
    }
  }
  if (empty) {
    return;
  }
  auto of = geometry_of(spec, in.x);
  GroupRows rows({&in.x, &inputs.back()}, spec_.input ? &outputs[0] : nullptr);
  auto weight = parameter_of(in.weight), bias = parameter_of(in.bias);
  Parameter given[3]; // mean, rest and variance
  if (spec.running) {
    given[0] = parameter_of(in.mean);
    given[2] = parameter_of(in.variance);
  } else {
    for (int i = 0; i < 3; ++i) {
      given[i] = parameter_of(&inputs[inputs.size() - 4 + i]);
    }
  }
  mx::cpu::get_command_encoder(stream()).dispatch([=,
                                                   vjp = spec_,
                                                   mean = given[0],
                                                   rest = given[1],
                                                   variance = given[2]]() {
    const auto& spec = vjp.norm;
    bool of_sums = vjp.input && !spec.running;
    auto w = weight_or_ones(weight, of.channels);
    FloatParameter b(bias);
    auto no_bias = absent_bias(bias, of);
    auto job_of = [&](const auto& given, int64_t count, const float* vectors) {
      GroupVJPJob job{};
      job.channels = of.channels;
      job.rows = count;
      job.x = given[0];
      job.cotangent = given[1];
      job.mean = of.row(vectors, kMean);
      job.rstd = of.row(vectors, kRstd);
      job.shift = of.row(vectors, kShift);
      job.weight = w.data();
      job.bias = b.data() ? b.data() : no_bias.data();
      job.activation = spec.activation;
      return job;
    };
    GroupWork work;
    work.vector_rows = kVJPRows;
    work.partial_rows = vjp.sums || of_sums ? 2 : 0;
    work.prepare = [&](int64_t sample, float* vectors) {
      FloatParameter means(mean.only(sample)), rests(rest.only(sample));
      FloatParameter variances(variance.only(sample));
      set_statistics(
          of, means.data(), rests.data(), variances.data(), spec.eps, vectors);
    };
    work.add_up =
        [&](int64_t begin, int64_t end, const float* vectors, float* partials) {
          rows.for_each(
              begin,
              end,
              rows.scratch(),
              [&](int64_t row, int64_t count, const auto& given) {
                auto job = job_of(given, count, vectors);
                job.before = row - begin;
                job.bias_sums = of.row(partials, 0);
                job.weight_sums = of.row(partials, 1);
                group_kernels().vjp_sums(job);
              });
        };
    work.merge = [&](int64_t sample, const float* partials, float* vectors) {
      std::vector<float> own(vjp.sums ? 0 : 2 * of.channels);
      std::vector<float> means(of_sums ? 2 * of.groups : 0);
      auto at = [&](int i) {
        return vjp.sums ? sums[i] + sample * of.channels
                        : own.data() + i * of.channels;
      };
      merge_gradients(
          of,
          partials,
          weight.n_rows ? w.data() : nullptr,
          at(0),
          at(1),
          of_sums ? means.data() : nullptr);
      if (of_sums) {
        of.spread(of.row(vectors, kLess), [&](int64_t i) { return means[i]; });
        of.spread(of.row(vectors, kAlong), [&](int64_t i) {
          return means[of.groups + i];
        });
      }
    };
    if (vjp.input) {
      work.apply = [&](int64_t begin, int64_t end, const float* vectors) {
        auto scratch = rows.scratch();
        rows.for_each(
            begin,
            end,
            scratch,
            [&](int64_t row, int64_t count, const auto& given) {
              rows.write(input, row, count, scratch, [&](const auto& to) {
                auto job = job_of(given, count, vectors);
                job.input = to;
                if (of_sums) {
                  job.along = of.row(vectors, kAlong);
                  job.less = of.row(vectors, kLess);
                }
                group_kernels().vjp_input(job);
              });
            });
      };
    }
    work.run(of);
  });
}

} // namespace mlx_norms
