// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/small_groups.h"

#include <array>

#include "csrc/cpu/row_blocks.h"
#include "csrc/cpu/row_runs.h"
#include "csrc/group_norm/cpu_kernels.h"
#include "csrc/norm/cpu_parameters.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms::cpu {

namespace {

// How the kernels take the groups: some of a sample's, or all of a batch of
// samples.
struct SmallBlocks {
  GroupGeometry of;
  int64_t of_group; // channels
  int64_t lanes;    // as many as are worth a call
  int64_t at_once;  // groups
  int64_t of_batch; // samples
  int64_t batches;

  explicit SmallBlocks(const GroupGeometry& of)
      : of(of),
        of_group(of.channels / of.groups),
        lanes(of.positions * of_group <= 8 ? kMaxLanes : kRowMultiple),
        at_once(of.groups < lanes ? lanes / of.groups * of.groups : lanes),
        of_batch(std::max<int64_t>(at_once / of.groups, 1)),
        batches((of.samples + of_batch - 1) / of_batch) {}

  int64_t elements() const {
    return of.positions * of_group;
  }
  int64_t step() const {
    return of.strided ? of.groups : 1;
  }
  bool adjoin() const {
    bool in_sample = of.strided || of_group == 1;
    return in_sample &&
        (of_batch == 1 || of.groups % 4 == 0 || of_sample() == of.groups);
  }
  int64_t of_sample() const {
    return of.positions * of.channels;
  }
};

// The rows of an array in float32, one after another: in place, or copied.
class DenseRows {
 public:
  explicit DenseRows(const array& a)
      : runs_({&a}),
        rows_(rows_in(a, runs_.row_stride(0))),
        channels_(a.shape(-1)),
        dense_(a.flags().row_contiguous) {}

  bool in_place() const {
    return dense_ && rows_.type == Float::f32;
  }
  const float* from(int64_t begin, int64_t end, float* to) const {
    auto dense = cpu::from(rows_, begin * channels_);
    if (in_place()) {
      return static_cast<const float*>(dense.data);
    }
    if (dense_) {
      kernels().load(dense, 0, (end - begin) * channels_, to);
      return to;
    }
    auto* row = to;
    runs_.for_each(
        begin, end, [&](int64_t, int64_t count, const auto& offsets) {
          auto run = cpu::from(rows_, offsets[0]);
          for (int64_t i = 0; i < count; ++i, row += channels_) {
            kernels().load(run, i, channels_, row);
          }
        });
    return to;
  }

 private:
  RowRuns runs_;
  RowsIn rows_;
  int64_t channels_;
  bool dense_;
};

// The rows of a result, in place or to be stored from float32.
struct DenseRowsOut {
  RowsOut rows;
  int64_t channels;

  bool in_place() const {
    return rows.type == Float::f32;
  }
  float* at(int64_t begin, float* copy) const {
    return in_place() ? static_cast<float*>(rows.data) + begin * channels
                      : copy;
  }
  void store(int64_t begin, int64_t end, const float* copy) const {
    if (!in_place()) {
      kernels().store(
          copy, (end - begin) * channels, from(rows, begin * channels));
    }
  }
};

// A parameter as the kernels take it: for each channel of a group a row with
// the values of the groups that they take at once.
class LaneParameter {
 public:
  LaneParameter(const SmallBlocks& blocks, const Parameter& p, float absent) {
    const auto& of = blocks.of;
    if (p.n_rows == 0) {
      rows_.assign(blocks.lanes, absent);
      return;
    }
    FloatParameter values(p);
    stride_ = blocks.lanes;
    of_groups_ = blocks.of_group * stride_;
    auto groups = std::max(of.groups, blocks.at_once);
    auto count = (groups + stride_ - 1) / stride_;
    rows_.resize(count * of_groups_);
    auto step = blocks.step();
    for (int64_t i = 0; i < groups; ++i) {
      auto* from = values.data() + of.first_channel(i % of.groups);
      auto* to = rows_.data() + i / stride_ * of_groups_ + i % stride_;
      for (int64_t j = 0; j < blocks.of_group; ++j) {
        to[j * stride_] = from[j * step];
      }
    }
  }

  int64_t stride() const {
    return stride_;
  }
  // Of the groups from this one of a sample's.
  const float* of(int64_t group) const {
    return rows_.data() + (stride_ ? group / stride_ * of_groups_ : 0);
  }

 private:
  std::vector<float> rows_;
  int64_t stride_ = 0;
  int64_t of_groups_ = 0;
};

// What a thread needs: lanes, and copies of a batch of some arrays.
class SmallScratch {
 public:
  SmallScratch(const SmallBlocks& blocks, int copies)
      : copy_(blocks.of_batch * blocks.of_sample() + blocks.of.pitch),
        lanes_(blocks.lanes, kSmallScratch * blocks.elements()),
        copies_(copy_, copies) {}

  float* lanes() const {
    return lanes_.data();
  }
  float* copy(int i) const {
    return copies_.data() + i * padded(copy_);
  }

 private:
  int64_t copy_; // its last row is padded
  Scratch lanes_;
  Scratch copies_;
};

// Calls f(groups, group) for the groups of a batch that are taken at once, of
// which `group` is the first; elements are counted from the batch's.
template <typename F>
void for_groups(const SmallBlocks& blocks, int64_t batch, F f) {
  const auto& of = blocks.of;
  std::array<int64_t, kMaxLanes> elements, channels;
  auto begin = batch * blocks.of_batch;
  auto end = std::min(begin + blocks.of_batch, of.samples);
  auto last = end * of.groups;
  auto apart = of.strided ? 1 : blocks.of_group; // first channels
  bool one_element = blocks.of_sample() == of.groups;
  for (auto first = begin * of.groups; first < last; first += blocks.at_once) {
    auto count = std::min(blocks.at_once, last - first);
    auto sample = first / of.groups, group = first % of.groups;
    for (int64_t i = 0; one_element && i < count; ++i) {
      channels[i] = first + i;
      elements[i] = channels[i] - begin * of.groups;
    }
    auto next = group;
    for (int64_t i = 0; !one_element && i < count; ++i) {
      auto channel = next * apart;
      elements[i] = (sample - begin) * blocks.of_sample() + channel;
      channels[i] = sample * of.channels + channel;
      if (++next == of.groups) {
        next = 0;
        ++sample;
      }
    }
    SmallGroups groups{
        count,
        blocks.lanes,
        of.positions,
        of.channels,
        blocks.of_group,
        blocks.step(),
        blocks.adjoin(),
        elements.data(),
        channels.data()};
    f(groups, first, group);
  }
}

// Calls f(batch, begin, end, scratch) for each batch, of the rows from begin to
// end.
template <typename F>
void for_batches(const SmallBlocks& blocks, int copies, F f) {
  blocks_by_threads(blocks.batches, blocks.of_batch * blocks.of_sample())
      .for_each([&](int, int64_t first, int64_t last) {
        SmallScratch scratch(blocks, copies);
        for (auto batch = first; batch < last; ++batch) {
          auto begin = batch * blocks.of_batch;
          auto end = std::min(begin + blocks.of_batch, blocks.of.samples);
          auto rows = blocks.of.positions;
          f(batch, begin * rows, end * rows, scratch);
        }
      });
}

} // namespace

bool are_small_groups(const GroupGeometry& of) {
  // Few channels leave lanes empty where these are of channels.
  constexpr int64_t kPositions = 16, kChannels = 16;
  constexpr int64_t kElements = 128, kOfFewChannels = 512, kOfSample = 512;
  auto of_sample = of.positions * of.channels, of_group = of_sample / of.groups;
  return (of.channels < kChannels && of_group <= kOfFewChannels) ||
      (of_group <= kElements &&
       (of.positions < kPositions || of_sample <= kOfSample));
}

void norm_small_groups(
    const GroupNormSpec& spec,
    const GroupGeometry& of,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  NormInputs in(spec.operands, inputs.data());
  SmallBlocks blocks(of);
  DenseRows x(in.x());
  DenseRowsOut y{rows_out(outputs[0]), of.channels};
  int copies = x.in_place() && y.in_place() ? 0 : 2;
  Parameter weight(in[kWeight]), bias(in[kBias]);
  float* statistics[3];
  for (int i = 0; i < 3; ++i) {
    statistics[i] = outputs[1 + i].data<float>();
  }
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    LaneParameter w(blocks, weight, 1.0f), b(blocks, bias, -0.0f);
    for_batches(
        blocks,
        copies,
        [&](int64_t batch,
            int64_t begin,
            int64_t end,
            const SmallScratch& scratch) {
          SmallGroupsJob job{};
          job.x = x.from(begin, end, scratch.copy(0));
          job.y = y.at(begin, scratch.copy(1));
          job.activation = spec.activation;
          job.eps = spec.eps;
          job.scratch = scratch.lanes();
          job.weight_stride = w.stride();
          job.bias_stride = b.stride();
          for_groups(
              blocks,
              batch,
              [&](const SmallGroups& groups, int64_t first, int64_t group) {
                job.groups = groups;
                job.mean = statistics[0] + first;
                job.rest = statistics[1] + first;
                job.variance = statistics[2] + first;
                job.weight = w.of(group);
                job.bias = b.of(group);
                group_kernels().norm_small_groups(job);
              });
          y.store(begin, end, job.y);
        });
  });
}

void vjp_of_small_groups(
    const GroupNormVJPSpec& spec,
    const GroupGeometry& of,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  const auto& norm = spec.norm;
  NormInputs in(norm.operands, inputs.data());
  SmallBlocks blocks(of);
  DenseRows x(in.x()), g(inputs.back());
  DenseRowsOut input{};
  if (spec.input) {
    input = {rows_out(outputs[0]), of.channels};
  }
  bool in_place = x.in_place() && g.in_place() && input.in_place();
  int copies = in_place ? 0 : 3;
  float* sums[2] = {};
  for (int i = 0; spec.sums && i < 2; ++i) {
    sums[i] = outputs[spec.input + i].data<float>();
  }
  Parameter weight(in[kWeight]), bias(in[kBias]);
  std::vector<DenseRows> given; // mean, rest and variance of each group
  for (int i = 0; i < 3; ++i) {
    given.emplace_back(inputs[inputs.size() - 4 + i]);
  }
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    LaneParameter w(blocks, weight, 1.0f), b(blocks, bias, -0.0f);
    std::vector<float> rows_of_groups[3];
    const float* statistics[3];
    for (int i = 0; i < 3; ++i) {
      if (!given[i].in_place()) {
        rows_of_groups[i].resize((of.samples + 1) * of.groups + kRowMultiple);
      }
      statistics[i] = given[i].from(0, of.samples, rows_of_groups[i].data());
    }
    for_batches(
        blocks,
        copies,
        [&](int64_t batch,
            int64_t begin,
            int64_t end,
            const SmallScratch& scratch) {
          SmallGroupsVJPJob job{};
          job.x = x.from(begin, end, scratch.copy(0));
          job.cotangent = g.from(begin, end, scratch.copy(1));
          if (spec.input) {
            job.input = input.at(begin, scratch.copy(2));
          }
          job.bias_sums = sums[0];
          job.weight_sums = sums[1];
          job.activation = norm.activation;
          job.eps = norm.eps;
          job.scratch = scratch.lanes();
          job.weight_stride = w.stride();
          job.bias_stride = b.stride();
          for_groups(
              blocks,
              batch,
              [&](const SmallGroups& groups, int64_t first, int64_t group) {
                job.groups = groups;
                job.mean = statistics[0] + first;
                job.rest = statistics[1] + first;
                job.variance = statistics[2] + first;
                job.weight = w.of(group);
                job.bias = b.of(group);
                group_kernels().vjp_of_small_groups(job);
              });
          if (spec.input) {
            input.store(begin, end, job.input);
          }
        });
  });
}

} // namespace mlx_norms::cpu
