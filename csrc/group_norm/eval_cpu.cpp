// Copyright © 2026 mlx_norms contributors
//
// x is read twice, chunk by chunk: for sums, which are merged in an order that
// does not depend on the number of threads, and for the results.

#include <cmath>

#include "csrc/group_norm/cpu_kernels.h"
#include "csrc/group_norm/cpu_rows.h"
#include "csrc/group_norm/cpu_statistics.h"
#include "csrc/group_norm/cpu_work.h"
#include "csrc/group_norm/group_norm.h"
#include "csrc/group_norm/small_groups.h"
#include "csrc/op/eval_cpu.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

// The rows of a sample in a GroupWork's vectors: see GroupNormalizeJob and
// GroupVJPJob.
enum Row { kMean, kRstd, kOffset, kMeanWgn, kMeanWg };
constexpr int kForwardRows = kMeanWgn, kVJPRows = kMeanWg + 1;

// Writes what a sample's statistics of each group make of each channel.
void set_statistics(
    const GroupGeometry& of,
    const float* means,
    const float* rests, // null: zeros
    const float* variances,
    float eps,
    float* vectors) {
  auto* rstd = of.row(vectors, kRstd);
  of.set(of.row(vectors, kMean), [&](int64_t i) { return means[i]; });
  of.set(rstd, [&](int64_t i) { return 1.0f / std::sqrt(variances[i] + eps); });
  of.set(of.row(vectors, kOffset), [&](int64_t i) {
    return rests ? -rests[i] * rstd[of.place(i)] : -0.0f;
  });
}

// Some channels, and their values in a row of a sample's vectors.
struct ChannelVectors {
  int64_t first;
  int64_t count;
  const float* rows;
  int64_t pitch;

  const float* row(int i) const {
    return rows + i * pitch;
  }
};

// Calls f(channels) for all channels at once or, along them, for some that a
// core's cache holds.
template <typename F>
void for_channels(
    const GroupGeometry& of,
    const float* vectors,
    int n_rows,
    F f) {
  constexpr int64_t kAtOnce = 2048;
  if (!of.along_channels()) {
    return f(ChannelVectors{0, of.channels, vectors, of.pitch});
  }
  auto pitch = std::min(of.pitch, kAtOnce);
  Scratch spread(pitch, n_rows);
  for (int64_t first = 0; first < of.channels; first += pitch) {
    auto count = std::min(pitch, of.channels - first);
    for (int i = 0; i < n_rows; ++i) {
      auto* row = spread.data() + i * pitch;
      of.spread(of.row(vectors, i), first, count, row);
      std::fill(row + count, row + padded(count), 0.0f);
    }
    f(ChannelVectors{first, count, spread.data(), pitch});
  }
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

// The partial sums of a sample whose statistics are taken along its channels:
// no small groups, so there is room.
double* as_doubles(float* partials) {
  return reinterpret_cast<double*>(partials);
}
const double* as_doubles(const float* partials) {
  return reinterpret_cast<const double*>(partials);
}

// What stands for an absent bias: minus zeros, which change nothing.
std::vector<float> absent_bias(const Parameter& bias, const GroupGeometry& of) {
  return std::vector<float>(bias.n_rows ? 0 : of.pitch, -0.0f);
}

} // namespace

void GroupNorm::eval_cpu(
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) const {
  GroupNormInputs in(spec, inputs.data());
  bool empty = in.x.size() == 0;
  auto y = rows_out(outputs[0]);
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
  auto of = geometry_of(spec, in.x);
  if (!spec.running && are_small_groups(of)) {
    return norm_small_groups(spec, of, inputs, outputs, stream);
  }
  GroupRows summed({&in.x}, nullptr), normalized({&in.x}, &outputs[0]);
  Parameter weight(in.weight), bias(in.bias);
  auto given_mean = Parameter(in.mean);
  auto given_variance = Parameter(in.variance);
  mx::cpu::get_command_encoder(stream).dispatch([=, spec = spec]() {
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
                if (of.along_channels()) {
                  return add_along_channels(
                      of, rows[0], count, row - begin, as_doubles(partials));
                }
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
      if (of.along_channels()) {
        finish_along_channels(of, as_doubles(partials), at[0], at[1], at[2]);
      } else {
        merge_statistics(of, partials, at[0], at[1], at[2]);
      }
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
              for_channels(of, vectors, kForwardRows, [&](const auto& some) {
                group_kernels().normalize(
                    {some.count,
                     count,
                     from(rows[0], some.first),
                     from(to, some.first),
                     of.channels,
                     some.row(kMean),
                     some.row(kRstd),
                     some.row(kOffset),
                     w.data() + some.first,
                     (b.data() ? b.data() : no_bias.data()) + some.first,
                     spec.activation});
              });
            });
          });
    };
    work.run(of);
  });
}

void GroupNormVJP::eval_cpu(
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) const {
  const auto& vjp = this->spec;
  const auto& spec = vjp.norm;
  GroupNormInputs in(spec, inputs.data());
  bool empty = in.x.size() == 0;
  RowsOut input;
  if (vjp.input) {
    input = rows_out(outputs[0]);
  }
  float* sums[2] = {};
  for (int i = 0; vjp.sums && i < 2; ++i) {
    auto& out = outputs[vjp.input + i];
    sums[i] = out.data<float>();
    if (empty) {
      std::fill_n(sums[i], out.size(), 0.0f);
    }
  }
  if (empty) {
    return;
  }
  auto of = geometry_of(spec, in.x);
  if (!spec.running && are_small_groups(of)) {
    return vjp_of_small_groups(vjp, of, inputs, outputs, stream);
  }
  GroupRows rows({&in.x, &inputs.back()}, vjp.input ? &outputs[0] : nullptr);
  Parameter weight(in.weight), bias(in.bias);
  Parameter given[3]; // mean, rest and variance
  if (spec.running) {
    given[0] = Parameter(in.mean);
    given[2] = Parameter(in.variance);
  } else {
    for (int i = 0; i < 3; ++i) {
      given[i] = Parameter(&inputs[inputs.size() - 4 + i]);
    }
  }
  mx::cpu::get_command_encoder(stream).dispatch([=,
                                                 vjp = vjp,
                                                 mean = given[0],
                                                 rest = given[1],
                                                 variance = given[2]]() {
    const auto& spec = vjp.norm;
    bool of_sums = vjp.input && !spec.running;
    auto w = weight_or_ones(weight, of.channels);
    FloatParameter b(bias);
    auto no_bias = absent_bias(bias, of);
    auto job_of = [&](const auto& given, int64_t count, const auto& some) {
      GroupVJPJob job{};
      job.channels = some.count;
      job.rows = count;
      job.x = from(given[0], some.first);
      job.cotangent = from(given[1], some.first);
      job.mean = some.row(kMean);
      job.rstd = some.row(kRstd);
      job.shift = some.row(kOffset);
      job.weight = w.data() + some.first;
      job.bias = (b.data() ? b.data() : no_bias.data()) + some.first;
      job.activation = spec.activation;
      return job;
    };
    // Along the channels: adds rows to the sums of a sample and, in double, to
    // two of each group.
    auto add_sums = [&](int64_t row,
                        int64_t count,
                        bool first,
                        const auto& given,
                        const float* vectors,
                        float* partials) {
      auto* groups = as_doubles(partials);
      if (first && of_sums) {
        std::fill_n(groups, 2 * of.groups, 0.0);
      }
      for_channels(of, vectors, kForwardRows, [&](const auto& some) {
        Scratch own(some.count, 2);
        auto job = job_of(given, count, some);
        job.bias_sums = own.data();
        job.weight_sums = own.data() + padded(some.count);
        group_kernels().vjp_sums(job);
        for (int i = 0; i < 2; ++i) {
          auto* sum = i == 0 ? job.bias_sums : job.weight_sums;
          if (of_sums) {
            add_weighted(
                of,
                sum,
                job.weight,
                some.first,
                some.count,
                groups + i * of.groups);
          }
          if (vjp.sums) {
            auto* to = sums[i] + row / of.positions * of.channels + some.first;
            for (int64_t c = 0; c < some.count; ++c) {
              to[c] = first ? sum[c] : to[c] + sum[c];
            }
          }
        }
      });
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
                if (of.along_channels()) {
                  return add_sums(
                      row, count, row == begin, given, vectors, partials);
                }
                ChannelVectors all{0, of.channels, vectors, of.pitch};
                auto job = job_of(given, count, all);
                job.before = row - begin;
                job.bias_sums = of.row(partials, 0);
                job.weight_sums = of.row(partials, 1);
                group_kernels().vjp_sums(job);
              });
        };
    work.merge = [&](int64_t sample, const float* partials, float* vectors) {
      std::vector<float> means(of_sums ? 2 * of.groups : 0);
      auto at = [&](int i) {
        return vjp.sums ? sums[i] + sample * of.channels : nullptr;
      };
      if (of.along_channels()) {
        for (size_t i = 0; i < means.size(); ++i) {
          means[i] = as_doubles(partials)[i] / of.values();
        }
      } else {
        merge_gradients(
            of,
            partials,
            w.data(),
            at(0),
            at(1),
            of_sums ? means.data() : nullptr);
      }
      if (of_sums) {
        of.set(of.row(vectors, kMeanWg), [&](int64_t i) { return means[i]; });
        of.set(of.row(vectors, kMeanWgn), [&](int64_t i) {
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
                for_channels(of, vectors, kVJPRows, [&](const auto& some) {
                  auto job = job_of(given, count, some);
                  job.input = from(to, some.first);
                  job.input_stride = of.channels;
                  if (of_sums) {
                    job.mean_wgn = some.row(kMeanWgn);
                    job.mean_wg = some.row(kMeanWg);
                  }
                  group_kernels().vjp_input(job);
                });
              });
            });
      };
    }
    work.run(of);
  });
}

template void Node<GroupNorm>::eval_cpu(const Arrays&, Arrays&);
template void Node<GroupNormVJP>::eval_cpu(const Arrays&, Arrays&);

} // namespace mlx_norms
