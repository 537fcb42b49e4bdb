// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <memory>

#include "csrc/cpu/row_blocks.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/channels/geometry.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/op/node.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

namespace {

using namespace cpu;

// An array as [outer, channels, inner].
class ChannelArray {
 public:
  ChannelArray(const mx::array& a, int axis) : data_(a.data<char>()) {
    type_ = float_type(a.dtype());
    int channels_axis = a.ndim() + axis;
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
      dense_step_ = inner_size(a, axis);
      dense_sample_ = dense_step_ * a.shape(channels_axis);
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

  ChannelsIn at(int64_t sample, int64_t column) const {
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

// The columns of an array in runs of kSumColumns, or fewer at a sample's end.
struct ColumnRuns {
  int64_t channels;
  int64_t inner;
  int64_t per_sample;
  int64_t count;

  ColumnRuns(const mx::array& x, int axis)
      : channels(x.shape(axis)),
        inner(inner_size(x, axis)),
        per_sample((inner + kSumColumns - 1) / kSumColumns) {
    auto sample = channels * inner;
    count =
        sample == 0 ? 0 : static_cast<int64_t>(x.size()) / sample * per_sample;
  }

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
      auto first = in_sample * kSumColumns;
      auto columns = std::min(runs * kSumColumns, inner - first);
      f(begin, begin / per_sample, first, columns);
      begin += runs;
    }
  }

 private:
  static constexpr int64_t kTogether = kMaxColumns / kSumColumns;

  int64_t worth() const {
    return blocks_worth(count * channels * std::min(kSumColumns, inner));
  }
};

} // namespace

void eval_channels(
    const NormSpec& spec,
    const NormInputs& in,
    array& to,
    mx::Stream stream) {
  ChannelArray x(in.x(), spec.axis);
  ColumnRuns of(in.x(), spec.axis);
  Parameter weight(in[kWeight], spec.weight_offset), bias(in[kBias], 0.0f);
  auto out = rows_out(to);
  if (to.size() == 0) {
    return;
  }
  auto blocks = of.by_threads(of.count);
  mx::cpu::get_command_encoder(stream).dispatch(
      [=, x = std::move(x), spec = spec]() mutable {
        FloatParameter w(weight), b(bias);
        auto copy = x.make_dense();
        blocks.for_each([&](int, int64_t begin, int64_t end) {
          of.for_each(
              begin,
              end,
              [&](int64_t, int64_t sample, int64_t first, int64_t columns) {
                auto to = sample * of.channels * of.inner + first;
                kernels().channel_norm(
                    {of.channels,
                     columns,
                     x.at(sample, first),
                     from(out, to),
                     of.inner,
                     w.data(),
                     b.data(),
                     spec.center,
                     spec.rounding == Rounding::Late,
                     spec.activation,
                     root_of(spec)});
              });
        });
      });
}

void eval_channels_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  const auto& norm = op.norm;
  auto wanted = op.wanted;
  NormInputs in(norm.operands, inputs.data());
  ChannelArray s(in.x(), norm.axis), cotangent(*in[kCotangent], norm.axis);
  ColumnRuns of(in.x(), norm.axis);
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
    FloatParameter w(weight);
    auto copy = s.make_dense();
    auto other_copy = cotangent.make_dense();
    ParameterGradient of_weight(
        wanted.has(kWeight), 1, of.channels, sums.count());
    ParameterGradient of_bias(wanted.has(kBias), 1, of.channels, sums.count());
    blocks.for_each([&](int, int64_t first_sum, int64_t end_sum) {
      auto begin = sums.rows(first_sum).first;
      auto end = sums.rows(end_sum - 1).second;
      auto sum = first_sum;
      of.for_each(
          begin,
          end,
          [&](int64_t run, int64_t sample, int64_t first, int64_t columns) {
            auto to = sample * of.channels * of.inner + first;
            ChannelNormVJPJob job{
                of.channels,
                columns,
                s.at(sample, first),
                cotangent.at(sample, first),
                input.data ? from(input, to) : RowsOut{},
                of.inner,
                w.data(),
                {},
                {},
                norm.center,
                root_of(norm)};
            for (int64_t i = 0; i * kSumColumns < columns; ++i, ++run) {
              sum += run == sums.rows(sum).second;
              job.weight_gradients[i] = of_weight.block(sum);
              job.bias_gradients[i] = of_bias.block(sum);
            }
            kernels().channel_norm_vjp(job);
          });
    });
    of_weight.store(weight_to);
    of_bias.store(bias_to);
  });
}

} // namespace mlx_norms
