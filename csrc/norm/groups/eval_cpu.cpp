// Copyright © 2026 mlx_norms contributors
//
// x is read twice, chunk by chunk: for sums, which are merged in an order that
// does not depend on the number of threads, and for the results.

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
struct NormArrays {
  GroupRows summed, normalized;
  Parameter weight, bias, mean, variance;
  RowsOut y;
  float* statistics[3]; // mean, rest and variance, unless they are given
};

class Normalizer {
 public:
  Normalizer(
      const NormSpec& spec,
      const GroupGeometry& of,
      const NormArrays& arrays)
      : of(of),
        spec_(spec),
        arrays_(arrays),
        weight_(weight_or_ones(arrays.weight, of.channels)),
        bias_(bias_or_zeros(arrays.bias, of.channels)),
        mean_(arrays.mean),
        variance_(arrays.variance) {}

  void run(const Samples& samples) const {
    ChannelRows vectors(of, samples.count, kForwardRows);
    if (spec_.has_running_statistics()) {
      auto *mean = mean_.data(), *variance = variance_.data();
      samples.for_each([&](int64_t i) {
        set_statistics(of, mean, nullptr, variance, spec_.eps, vectors.at(i));
      });
    } else {
      ChannelRows partials(of, samples.count * of.chunks, 3);
      samples.for_chunks([&](int64_t, int64_t chunk, auto begin, auto end) {
        add_up(begin, end, partials.at(chunk));
      });
      samples.for_each([&](int64_t i) {
        merge(samples.first + i, partials.at(i * of.chunks), vectors.at(i));
      });
    }
    samples.for_chunks_again([&](int64_t i, int64_t, auto begin, auto end) {
      apply(begin, end, vectors.at(i));
    });
  }

 private:
  void add_up(int64_t begin, int64_t end, float* partials) const {
    const auto& x = arrays_.summed;
    auto add = [&](int64_t row, int64_t count, const auto& rows) {
      if (of.along_channels()) {
        auto* to = as_doubles(partials);
        return add_along_channels(of, rows[0], count, row - begin, to);
      }
      kernels().lane_statistics(
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

  void merge(int64_t sample, const float* partials, float* vectors) const {
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

  void apply(int64_t begin, int64_t end, const float* vectors) const {
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
    for_channels(of, vectors, kForwardRows, [&](const ChannelVectors& some) {
      kernels().lane_norm(
          {some.count,
           count,
           from(x, some.first),
           from(to, some.first),
           of.channels,
           {some.row(kMeans), some.row(kRstd), some.row(kOffset)},
           weight_.data() + some.first,
           bias_.data() + some.first,
           spec_.activation});
    });
  }

  const GroupGeometry& of;
  const NormSpec& spec_;
  const NormArrays& arrays_;
  FloatParameter weight_, bias_, mean_, variance_;
};

// Tile by tile, in which x becomes y.
void normalize_in_lanes(
    const NormSpec& spec,
    const GroupLanes& lanes,
    const DenseRows& x,
    const LaneParameter& weight,
    const LaneParameter& bias,
    const RowsOut& y,
    float* const (&statistics)[3]) {
  const auto& of = lanes.of;
  auto of_sample = of.positions * of.channels;
  auto channels = lanes.of_group * lanes.lanes;
  lanes.batches().for_each([&](int, int64_t batch, int64_t end) {
    FloatRow copy, result, tile(channels * of.positions);
    LaneStatistics stats(lanes.lanes);
    for (; batch < end; ++batch) {
      auto sample = batch * lanes.of_batch, last = lanes.end_of(batch);
      auto* from = x.from(sample * of.positions, last * of.positions, copy);
      DenseResult to(y, sample * of_sample, last * of_sample, result);
      lanes.for_tiles(last - sample, [&](int64_t first, int64_t count) {
        LanePlaces places(lanes, first, count, of.positions, of_sample);
        places.to_tile(from, tile);
        RowsIn rows{tile.data(), Float::f32, lanes.lanes};
        stats.measure(
            stats.job_for(
                rows, lanes.lanes, lanes.elements, /* center= */ true),
            {spec.eps});
        auto to_group = sample * of.groups + first;
        std::copy_n(stats.mean, count, statistics[0] + to_group);
        std::copy_n(stats.rest, count, statistics[1] + to_group);
        std::copy_n(stats.variance, count, statistics[2] + to_group);
        for (int64_t i = 0; i < channels; i += lanes.lanes) {
          kernels().lane_norm(
              {lanes.lanes,
               of.positions,
               {tile.data() + i, Float::f32, channels},
               {tile.data() + i},
               channels,
               stats.scale(),
               weight.at(first) + i,
               bias.at(first) + i,
               spec.activation});
        }
        places.from_tile(tile, to.data());
      });
      to.store();
    }
  });
}

} // namespace

void eval_groups(
    const NormSpec& spec,
    const NormInputs& in,
    Arrays& outputs,
    mx::Stream stream) {
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
  Parameter weight(in[kWeight]), bias(in[kBias]);
  auto y = rows_out(outputs[0]);
  auto& encoder = mx::cpu::get_command_encoder(stream);
  if (!spec.has_running_statistics() && GroupLanes::are_for(of)) {
    encoder.dispatch(
        [=, spec = spec, lanes = GroupLanes(of), x = DenseRows(in.x())]() {
          LaneParameter w(lanes, weight, 1.0f), b(lanes, bias, -0.0f);
          normalize_in_lanes(spec, lanes, x, w, b, y, statistics);
        });
    return;
  }
  NormArrays arrays{
      GroupRows({&in.x()}, nullptr),
      GroupRows({&in.x()}, &outputs[0]),
      weight,
      bias,
      Parameter(in[kMean]),
      Parameter(in[kVariance]),
      y,
      {statistics[0], statistics[1], statistics[2]}};
  encoder.dispatch([spec = spec, of, arrays]() {
    Normalizer norm(spec, of, arrays);
    for_samples(of, [&](const Samples& some) { norm.run(some); });
  });
}

} // namespace mlx_norms
