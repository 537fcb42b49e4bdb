// Copyright © 2026 mlx_norms contributors
//
// Rows are read twice, chunk by chunk, as forward: for sums, and for x's
// gradient.

#include "csrc/common/derivatives.h"
#include "csrc/norm/groups/cpu_channels.h"
#include "csrc/norm/groups/cpu_rows.h"
#include "csrc/norm/groups/cpu_samples.h"
#include "csrc/norm/groups/cpu_tiles.h"
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

class Differentiator {
 public:
  Differentiator(
      const NormVJP& vjp,
      const GroupGeometry& of,
      const VJPArrays& arrays)
      : of(of),
        vjp_(vjp),
        arrays_(arrays),
        takes_means_(takes_means(vjp)),
        wants_sums_(arrays.sums[0]),
        weight_(weight_or_ones(arrays.weight, of.channels)),
        bias_(bias_or_zeros(arrays.bias, of.channels)) {}

  void run(const Samples& samples) const {
    ChannelRows vectors(of, samples.count, kVJPRows);
    samples.for_each([&](int64_t i) {
      auto sample = samples.first + i;
      FloatParameter means(arrays_.mean.only(sample));
      FloatParameter rests(arrays_.rest.only(sample));
      FloatParameter variances(arrays_.variance.only(sample));
      set_statistics(
          of,
          means.data(),
          rests.data(),
          variances.data(),
          vjp_.norm.eps,
          vectors.at(i));
    });
    if (wants_sums_ || takes_means_) {
      ChannelRows partials(of, samples.count * of.chunks, 2);
      samples.for_chunks([&](int64_t i, int64_t chunk, auto begin, auto end) {
        add_up(begin, end, vectors.at(i), partials.at(chunk));
      });
      samples.for_each([&](int64_t i) {
        merge(samples.first + i, partials.at(i * of.chunks), vectors.at(i));
      });
    }
    if (arrays_.input.data) {
      samples.for_chunks_again([&](int64_t i, int64_t, auto begin, auto end) {
        apply(begin, end, vectors.at(i));
      });
    }
  }

 private:
  void add_up(int64_t begin, int64_t end, const float* vectors, float* partials)
      const {
    const auto& rows = arrays_.rows;
    auto add = [&](int64_t row, int64_t count, const auto& given) {
      if (of.along_channels()) {
        bool first = row == begin;
        return add_along(row, count, first, given, vectors, partials);
      }
      auto job = job_of(given, count, {0, of.channels, vectors, of.pitch});
      job.before = row - begin;
      job.bias_sums = {of.row(partials, 0)};
      job.weight_sums = {of.row(partials, 1)};
      kernels().lane_sums(job);
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
      job.bias_sums = {own.data()};
      job.weight_sums = {own.data() + padded(some.count)};
      kernels().lane_sums(job);
      for (int i = 0; i < 2; ++i) {
        auto* sum = i == 0 ? job.bias_sums.sum : job.weight_sums.sum;
        if (takes_means_) {
          auto* to = groups + i * of.groups;
          add_weighted(of, sum, job.weight, some.first, some.count, to);
        }
        if (wants_sums_) {
          auto* to = sums_of(i, row / of.positions) + some.first;
          for (int64_t c = 0; c < some.count; ++c) {
            to[c] = first ? sum[c] : to[c] + sum[c];
          }
        }
      }
    });
  }

  void merge(int64_t sample, const float* partials, float* vectors) const {
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

  void apply(int64_t begin, int64_t end, const float* vectors) const {
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
      kernels().lane_gradients(job);
    });
  }

  // What both kernels are given.
  LaneVJPJob job_of(
      const std::vector<RowsIn>& given,
      int64_t count,
      const ChannelVectors& some) const {
    LaneVJPJob job{};
    job.lanes = some.count;
    job.rows = count;
    job.x = from(given[0], some.first);
    job.cotangent = from(given[1], some.first);
    job.by = {some.row(kMeans), some.row(kRstd), some.row(kOffset)};
    job.weight = weight_.data() + some.first;
    job.bias = bias_.data() + some.first;
    job.activation = vjp_.norm.activation;
    return job;
  }

  // Null if they are not wanted.
  float* sums_of(int i, int64_t sample) const {
    return wants_sums_ ? arrays_.sums[i] + sample * of.channels : nullptr;
  }

  const GroupGeometry& of;
  const NormVJP& vjp_;
  const VJPArrays& arrays_;
  bool takes_means_, wants_sums_;
  FloatParameter weight_, bias_;
};

// The means over each group of sums of its channels, weighted. They are taken
// over some channels first, so that rounding errors stay small.
void set_means(
    const GroupLanes& lanes,
    const float* weight,
    const FloatRow& sums,
    FloatRow& means) {
  constexpr int64_t kSummed = 16;
  float totals[GroupLanes::kMaxLanes] = {};
  for (int64_t first = 0; first < lanes.of_group; first += kSummed) {
    float some[GroupLanes::kMaxLanes] = {};
    auto end = std::min(first + kSummed, lanes.of_group);
    for (auto row = first * lanes.lanes; row < end * lanes.lanes;
         row += lanes.lanes) {
      for (int64_t i = 0; i < lanes.lanes; ++i) {
        some[i] += weight[row + i] * sums[row + i];
      }
    }
    for (int64_t i = 0; i < lanes.lanes; ++i) {
      totals[i] += some[i];
    }
  }
  for (int64_t i = 0; i < lanes.lanes; ++i) {
    means[i] = totals[i] / lanes.elements;
  }
}

// Tile by tile, in which x becomes its gradient.
void differentiate_in_lanes(
    const NormVJP& vjp,
    const GroupLanes& lanes,
    const DenseRows& x,
    const DenseRows& cotangent,
    const std::vector<DenseRows>& statistics,
    const LaneParameter& weight,
    const LaneParameter& bias,
    const RowsOut& input,
    float* const (&sums)[2]) {
  const auto& of = lanes.of;
  auto of_sample = of.positions * of.channels;
  auto channels = lanes.of_group * lanes.lanes;
  lanes.batches().for_each([&](int, int64_t batch, int64_t end) {
    FloatRow x_copy, g_copy, copy, result;
    FloatRow x_tile(channels * of.positions), g_tile(x_tile);
    LaneStatistics stats(lanes.lanes);
    FloatRow mean_wg(lanes.lanes), mean_wgn(mean_wg);
    FloatRow bias_sums(channels), weight_sums(channels);
    // The job of a channel of each group.
    auto job_of = [&](int64_t i, const float* w, const float* b) {
      return LaneVJPJob{
          lanes.lanes,
          of.positions,
          0,
          {x_tile.data() + i, Float::f32, channels},
          {g_tile.data() + i, Float::f32, channels},
          stats.scale(),
          w + i,
          b + i,
          vjp.norm.activation,
          {bias_sums.data() + i},
          {weight_sums.data() + i},
          {x_tile.data() + i},
          channels,
          mean_wgn.data(),
          mean_wg.data()};
    };
    for (; batch < end; ++batch) {
      auto sample = batch * lanes.of_batch, last = lanes.end_of(batch);
      auto row = sample * of.positions, end_row = last * of.positions;
      auto* xs = x.from(row, end_row, x_copy);
      auto* gs = cotangent.from(row, end_row, g_copy);
      DenseResult to(input, sample * of_sample, last * of_sample, result);
      lanes.for_tiles(last - sample, [&](int64_t first, int64_t count) {
        LanePlaces places(lanes, first, count, of.positions, of_sample);
        places.to_tile(xs, x_tile);
        places.to_tile(gs, g_tile);
        int i = 0;
        for (auto* row : {stats.mean, stats.rest, stats.variance}) {
          auto* of_groups = statistics[i++].from(sample, last, copy);
          std::copy_n(of_groups + first, count, row);
        }
        stats.set_factors(lanes.lanes, 1, {vjp.norm.eps}, /* center= */ true);
        auto *w = weight.at(first), *b = bias.at(first);
        for (int64_t c = 0; c < channels; c += lanes.lanes) {
          kernels().lane_sums(job_of(c, w, b));
        }
        if (sums[0]) {
          LanePlaces at(lanes, first, count, 1, of.channels);
          at.from_tile(bias_sums, sums[0] + sample * of.channels);
          at.from_tile(weight_sums, sums[1] + sample * of.channels);
        }
        if (input.data) {
          set_means(lanes, w, bias_sums, mean_wg);
          set_means(lanes, w, weight_sums, mean_wgn);
          for (int64_t c = 0; c < channels; c += lanes.lanes) {
            kernels().lane_gradients(job_of(c, w, b));
          }
          places.from_tile(x_tile, to.data());
        }
      });
      to.store();
    }
  });
}

} // namespace

void eval_groups_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  const auto& norm = op.norm;
  NormInputs in(norm.operands, inputs.data());
  bool empty = in.x().size() == 0;
  float* sums[2] = {};
  for (int i = 0; i < 2; ++i) {
    auto* out = op.wanted.find(i == 0 ? kBias : kWeight, outputs.data());
    sums[i] = out ? out->data<float>() : nullptr;
    if (out && empty) {
      std::fill_n(sums[i], out->size(), 0.0f);
    }
  }
  if (empty) {
    return;
  }
  auto of = geometry_of(norm, in.x());
  Parameter weight(in[kWeight]), bias(in[kBias]);
  auto input = op.wanted.has(kX) ? rows_out(outputs[0]) : RowsOut();
  auto& encoder = mx::cpu::get_command_encoder(stream);
  if (!norm.has_running_statistics() && GroupLanes::are_for(of)) {
    std::vector<DenseRows> given;
    for (auto operand : {kMean, kRest, kVariance}) {
      given.emplace_back(*in[operand]);
    }
    encoder.dispatch([=,
                      op = op,
                      lanes = GroupLanes(of),
                      x = DenseRows(in.x()),
                      g = DenseRows(*in[kCotangent])]() {
      LaneParameter w(lanes, weight, 1.0f), b(lanes, bias, -0.0f);
      differentiate_in_lanes(op, lanes, x, g, given, w, b, input, sums);
    });
    return;
  }
  VJPArrays arrays{
      GroupRows(
          {&in.x(), &*in[kCotangent]}, input.data ? &outputs[0] : nullptr),
      weight,
      bias,
      Parameter(in[kMean]),
      Parameter(in[kRest]),
      Parameter(in[kVariance]),
      input,
      {sums[0], sums[1]}};
  encoder.dispatch([op = op, of, arrays]() {
    Differentiator gradients(op, of, arrays);
    for_samples(of, [&](const Samples& some) { gradients.run(some); });
  });
}

} // namespace mlx_norms
