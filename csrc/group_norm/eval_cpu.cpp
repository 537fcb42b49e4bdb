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

// The statistics of a sample, of each channel: the mean in two parts, and the
// factor.
struct Statistics {
  std::vector<float> mean, rest, rstd;

  Statistics(
      const GroupGeometry& of,
      const float* means,
      const float* rests,
      const float* variances,
      float eps)
      : mean(of.channels),
        rest(of.channels),
        rstd(of.channels) {
    std::vector<float> roots(of.groups);
    for (int64_t i = 0; i < of.groups; ++i) {
      roots[i] = 1.0f / std::sqrt(variances[i] + eps);
    }
    of.for_each_channel([&](int64_t c, int64_t group) {
      mean[c] = means[group];
      rest[c] = rests ? rests[group] : 0.0f;
      rstd[c] = roots[group];
    });
  }
};

// The rows of a sample in a GroupWork's vectors: see GroupNormalizeJob and
// GroupVJPJob.
enum ForwardRow { kMean, kScale, kShift, kForwardRows };
enum VJPRow { kVJPMean, kVJPRstd, kVJPShift, kBy, kAlong, kLess, kVJPRows };

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
    FloatParameter w(weight), b(bias), mean(given_mean), var(given_variance);
    auto fill = [&](const Statistics& s, float* vectors) {
      auto* scale = of.row(vectors, kScale);
      auto* shift = of.row(vectors, kShift);
      std::copy(s.mean.begin(), s.mean.end(), of.row(vectors, kMean));
      for (int64_t c = 0; c < of.channels; ++c) {
        scale[c] = w.data() ? s.rstd[c] * w.data()[c] : s.rstd[c];
        shift[c] = (b.data() ? b.data()[c] : 0.0f) - s.rest[c] * scale[c];
      }
    };
    GroupWork work;
    work.vector_rows = kForwardRows;
    work.partial_rows = spec.running ? 0 : 3;
    work.prepare = [&](int64_t, float* vectors) {
      if (spec.running) {
        fill({of, mean.data(), nullptr, var.data(), spec.eps}, vectors);
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
      fill({of, at[0], at[1], at[2], spec.eps}, vectors);
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
                   of.row(vectors, kScale),
                   of.row(vectors, kShift),
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
    FloatParameter w(weight), b(bias);
    auto ones = weight_or_ones(weight, of.channels);
    std::vector<float> zeros(b.data() ? 0 : of.pitch);
    auto job_of = [&](const auto& given, int64_t count, const float* vectors) {
      GroupVJPJob job{};
      job.channels = of.channels;
      job.rows = count;
      job.x = given[0];
      job.cotangent = given[1];
      job.mean = of.row(vectors, kVJPMean);
      job.rstd = of.row(vectors, kVJPRstd);
      job.shift = of.row(vectors, kVJPShift);
      job.weight = ones.data();
      job.bias = b.data() ? b.data() : zeros.data();
      job.activation = spec.activation;
      return job;
    };
    GroupWork work;
    work.vector_rows = kVJPRows;
    work.partial_rows = vjp.sums || of_sums ? 2 : 0;
    work.prepare = [&](int64_t sample, float* vectors) {
      FloatParameter means(mean.only(sample)), rests(rest.only(sample));
      FloatParameter variances(variance.only(sample));
      Statistics s(of, means.data(), rests.data(), variances.data(), spec.eps);
      std::copy(s.mean.begin(), s.mean.end(), of.row(vectors, kVJPMean));
      std::copy(s.rstd.begin(), s.rstd.end(), of.row(vectors, kVJPRstd));
      auto *shift = of.row(vectors, kVJPShift), *by = of.row(vectors, kBy);
      for (int64_t c = 0; c < of.channels; ++c) {
        shift[c] = -s.rest[c] * s.rstd[c];
        by[c] = w.data() ? s.rstd[c] * w.data()[c] : s.rstd[c];
      }
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
          w.data(),
          at(0),
          at(1),
          of_sums ? means.data() : nullptr);
      if (of_sums) {
        auto* rstd = of.row(vectors, kVJPRstd);
        auto* along = of.row(vectors, kAlong);
        auto* less = of.row(vectors, kLess);
        of.for_each_channel([&](int64_t c, int64_t group) {
          less[c] = means[group] * rstd[c];
          along[c] = means[of.groups + group] * rstd[c];
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
                job.by = of.row(vectors, kBy);
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
