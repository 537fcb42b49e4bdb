// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <cmath>
#include <memory>

#include "csrc/cpu/row_blocks.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/channels/geometry.h"
#include "csrc/norm/cpu_lanes.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/norm/view.h"
#include "csrc/op/node.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

// An array as [outer, channels, inner].
class ChannelArray {
 public:
  ChannelArray(const NormSpec& spec, const mx::array& a)
      : data_(a.data<char>()) {
    type_ = float_type(a.dtype());
    int channels_axis = a.ndim() + spec.axis;
    for (int i = 0; i < static_cast<int>(a.ndim()); ++i) {
      Axis of{a.shape(i), {a.strides()[i]}};
      append(all_, of);
      if (i != channels_axis) {
        append(i < channels_axis ? outer_ : inner_, of);
      }
    }
    step_ = a.strides()[channels_axis];
    bool in_place =
        inner_.empty() || (inner_.size() == 1 && inner_[0].strides[0] == 1);
    if (!in_place) {
      size_ = a.size();
      View view(spec, a);
      dense_step_ = view.kept;
      dense_sample_ = dense_step_ * view.a;
    }
  }

  // Copies what is strided within its channels: call it when the task runs.
  std::shared_ptr<char[]> make_dense() {
    if (size_ == 0) {
      return nullptr;
    }
    auto item = size_of(type_);
    std::shared_ptr<char[]> copy(new char[size_ * item]);
    const auto& inner = all_.back();
    int64_t runs = size_ / inner.size;
    Axes axes(all_.begin(), all_.end() - 1);
    auto run = [&]<typename T>(T*) {
      auto* from = reinterpret_cast<const T*>(data_);
      auto* to = reinterpret_cast<T*>(copy.get());
      for (int64_t i = 0; i < runs; ++i) {
        auto at = offsets_at(axes, i)[0];
        for (int64_t j = 0; j < inner.size; ++j) {
          *to++ = from[at + j * inner.strides[0]];
        }
      }
    };
    item == 4 ? run(static_cast<uint32_t*>(nullptr))
              : run(static_cast<uint16_t*>(nullptr));
    data_ = copy.get();
    outer_ = {{size_ / dense_sample_, {dense_sample_}}};
    step_ = dense_step_;
    return copy;
  }

  // The columns of a sample from `column`, of which each channel is a row.
  RowsIn at(int64_t sample, int64_t column) const {
    auto offset = offsets_at(outer_, sample)[0] + column;
    return {data_ + offset * size_of(type_), type_, step_};
  }

 private:
  const char* data_;
  Float type_;
  Axes all_, outer_, inner_;
  int64_t step_;
  int64_t size_ = 0; // of a copy
  int64_t dense_step_ = 0;
  int64_t dense_sample_ = 0;
};

// The columns of an array in runs of kSumLanes, or fewer at a sample's end. Of
// a channel kMaxLanes are read before the next channel's: short runs, each in
// another page, take up to twice as long.
struct ColumnRuns {
  int64_t channels;
  int64_t inner;
  int64_t per_sample;
  int64_t count;

  explicit ColumnRuns(const View& view)
      : channels(view.a),
        inner(view.kept),
        per_sample((inner + kSumLanes - 1) / kSumLanes),
        count(channels == 0 ? 0 : view.outer * per_sample) {}

  // Sums over all columns are taken over these blocks of runs, the same for any
  // number of threads.
  RowBlocks of_sums() const {
    constexpr int64_t kMax = 32;
    return {count, static_cast<int>(std::min({count, worth(), kMax}))};
  }

  // Threads take blocks of parts, which are runs or blocks of them: as many
  // runs as are read together, if that leaves as many blocks for each thread.
  RowBlocks by_threads(int64_t parts) const {
    constexpr int64_t kBlocksOfThread = 4;
    int64_t threads = thread_count();
    auto blocks = (count + kTogether * threads - 1) / (kTogether * threads);
    auto wanted = threads == 1
        ? 1
        : std::min(
              std::clamp<int64_t>(blocks, 1, kBlocksOfThread) * threads,
              worth());
    return {parts, static_cast<int>(std::min(parts, wanted))};
  }

  // f(first run, sample, first column, columns) for runs that are read
  // together.
  template <typename F>
  void for_each(int64_t begin, int64_t end, F f) const {
    while (begin < end) {
      auto in_sample = begin % per_sample;
      auto runs = std::min({kTogether, end - begin, per_sample - in_sample});
      auto first = in_sample * kSumLanes;
      auto columns = std::min(runs * kSumLanes, inner - first);
      f(begin, begin / per_sample, first, columns);
      begin += runs;
    }
  }

 private:
  static constexpr int64_t kTogether = kMaxLanes / kSumLanes;

  int64_t worth() const {
    return blocks_worth(count * channels * std::min(kSumLanes, inner));
  }
};

} // namespace

void eval_channels(
    const NormSpec& spec,
    const NormInputs& in,
    array& to,
    mx::Stream stream) {
  ChannelArray x(spec, in.x());
  ColumnRuns of(View(spec, in.x()));
  Parameter weight(in[kWeight], spec.weight_offset), bias(in[kBias], 0.0f);
  auto out = rows_out(to);
  if (to.size() == 0) {
    return;
  }
  auto blocks = of.by_threads(of.count);
  mx::cpu::get_command_encoder(stream).dispatch(
      [=, x = std::move(x), spec = spec]() mutable {
        auto w = weight_or_ones(weight, of.channels);
        auto b = bias_or_zeros(bias, of.channels);
        auto copy = x.make_dense();
        auto root = root_of(spec);
        blocks.for_each([&](int, int64_t begin, int64_t end) {
          LaneStatistics stats(std::min(kMaxLanes, of.inner));
          of.for_each(
              begin,
              end,
              [&](int64_t, int64_t sample, int64_t first, int64_t columns) {
                auto from_x = x.at(sample, first);
                auto to = sample * of.channels * of.inner + first;
                stats.measure(
                    stats.job_for(from_x, columns, of.channels, spec.center),
                    root);
                kernels().lane_norm(
                    {columns,
                     of.channels,
                     from_x,
                     from(out, to),
                     of.inner,
                     stats.scale(),
                     w.data(),
                     b.data(),
                     spec.activation,
                     /* by_row= */ true,
                     spec.rounding == Rounding::Early,
                     !spec.center});
              });
        });
      });
}

// Those with normalized values, where those with deviations are beyond float32.
void mend_sums(LaneVJPJob job) {
  auto* sums = job.weight_sums.sum;
  Scratch again(kMaxLanes, 4);
  auto row = [&](int i) { return again.data() + i * kMaxLanes; };
  job.weight_sums = {row(0), row(1)};
  job.bias_sums = {row(2), row(3)};
  kernels().lane_sums(job);
  for (int64_t i = 0; i < job.lanes; ++i) {
    sums[i] = std::isfinite(sums[i]) ? sums[i] : row(0)[i];
  }
}

// The sums of a job over each column's channels become means, without gradient
// where the factor is that of eps alone.
void take_means(const LaneVJPJob& job, const NormSpec& spec) {
  auto *of_wgn = job.weight_sums.sum, *of_wg = job.bias_sums.sum;
  bool finite = true;
  for (int64_t i = 0; i < job.lanes; ++i) {
    of_wgn[i] *= job.by.rstd[i];
    finite &= std::isfinite(of_wgn[i]);
  }
  if (!finite) {
    mend_sums(job);
  }
  for (int64_t i = 0; i < job.lanes; ++i) {
    of_wgn[i] /= job.rows;
    of_wg[i] /= job.rows;
  }
  for (int64_t i = 0; spec.eps_bounds && i < job.lanes; ++i) {
    of_wgn[i] = job.by.rstd[i] >= 1.0f / spec.eps ? 0.0f : of_wgn[i];
  }
}

void eval_channels_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  const auto& norm = op.norm;
  auto wanted = op.wanted;
  NormInputs in(norm.operands, inputs.data());
  ChannelArray s(norm, in.x()), cotangent(norm, *in[kCotangent]);
  ColumnRuns of(View(norm, in.x()));
  Parameter weight(in[kWeight], norm.weight_offset);
  auto gradient = [&](Operand operand) {
    auto* out = wanted.find(operand, outputs.data());
    return out ? rows_out(*out) : RowsOut{};
  };
  auto input = gradient(kX);
  auto weight_to = gradient(kWeight), bias_to = gradient(kBias);
  if (of.channels == 0) {
    return;
  }
  auto sums = of.of_sums();
  auto blocks = of.by_threads(sums.count());
  mx::cpu::get_command_encoder(stream).dispatch([=,
                                                 s = std::move(s),
                                                 cotangent =
                                                     std::move(cotangent),
                                                 norm = norm,
                                                 wanted = wanted]() mutable {
    auto w = weight_or_ones(weight, of.channels);
    auto copy = s.make_dense();
    auto other_copy = cotangent.make_dense();
    ParameterGradient of_weight(
        wanted.has(kWeight), 1, of.channels, sums.count());
    ParameterGradient of_bias(wanted.has(kBias), 1, of.channels, sums.count());
    blocks.for_each([&](int, int64_t first_sum, int64_t end_sum) {
      auto begin = sums.rows(first_sum).first;
      auto end = sums.rows(end_sum - 1).second;
      auto sum = first_sum;
      LaneStatistics stats(std::min(kMaxLanes, of.inner));
      Scratch totals(kMaxLanes, 4);
      auto total = [&](int i) {
        auto* row = totals.data() + i * kMaxLanes;
        return LaneStatistics::sum(of.channels, row, row + 2 * kMaxLanes);
      };
      of.for_each(
          begin,
          end,
          [&](int64_t run, int64_t sample, int64_t first, int64_t columns) {
            LaneVJPJob job{};
            job.lanes = columns;
            job.rows = of.channels;
            job.x = s.at(sample, first);
            job.cotangent = cotangent.at(sample, first);
            job.by = stats.scale();
            job.weight = w.data();
            job.by_row = true;
            job.uncentered = !norm.center;
            auto statistics =
                stats.job_for(job.x, columns, of.channels, norm.center);
            if (input.data) {
              statistics.cotangent = job.cotangent;
              statistics.weight = job.weight;
              statistics.weight_sums = job.weight_sums = total(0);
              statistics.bias_sums = job.bias_sums = total(1);
            }
            stats.measure(statistics, root_of(norm));
            if (input.data) {
              take_means(job, norm);
              job.mean_wgn = job.weight_sums.sum;
              job.mean_wg = job.bias_sums.sum;
              job.input = from(input, sample * of.channels * of.inner + first);
              job.input_stride = of.inner;
            }
            for (int64_t i = 0; i * kSumLanes < columns; ++i, ++run) {
              sum += run == sums.rows(sum).second;
              job.weight_gradients[i] = of_weight.block(sum);
              job.bias_gradients[i] = of_bias.block(sum);
            }
            kernels().lane_gradients(job);
          });
    });
    of_weight.store(weight_to);
    of_bias.store(bias_to);
  });
}

} // namespace mlx_norms
