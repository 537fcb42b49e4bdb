// Copyright © 2026 mlx_norms contributors
//
// Groups of few elements, for which calls for each sample, and sums across a
// vector, would cost more than the arithmetic. They are copied to tiles and
// back, in which each has a lane: the kernels take lanes as channels, and a
// channel of each group at a call.

#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "csrc/cpu/row_blocks.h"
#include "csrc/cpu/row_runs.h"
#include "csrc/norm/cpu_lanes.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/norm/groups/cpu_statistics.h"

namespace mlx_norms::cpu {

using FloatRow = std::vector<float>;

// A group's results depend neither on its lane nor on the number of lanes.
struct GroupLanes {
  static constexpr int64_t kMaxLanes = 256;

  GroupGeometry of; // of the samples
  int64_t of_group; // channels
  int64_t elements; // of a group
  int64_t lanes;    // of a tile
  int64_t at_once;  // groups of a tile
  int64_t of_batch; // samples that are taken at once

  explicit GroupLanes(const GroupGeometry& of)
      : of(of),
        of_group(of.channels / of.groups),
        elements(of.positions * of_group),
        lanes(lanes_of(of)),
        at_once(of.groups < lanes ? lanes / of.groups * of.groups : lanes),
        of_batch(std::max<int64_t>(at_once / of.groups, 1)) {}

  // Whether they are worth it. It depends on a sample's sizes alone.
  static bool are_for(const GroupGeometry& of) {
    // Few channels leave lanes empty where these are of channels.
    constexpr int64_t kPositions = 16, kChannels = 16;
    constexpr int64_t kElements = 128, kOfFewChannels = 512, kOfSample = 512;
    auto of_sample = of.positions * of.channels;
    auto of_group = of_sample / of.groups;
    return (of.channels < kChannels && of_group <= kOfFewChannels) ||
        (of_group <= kElements &&
         (of.positions < kPositions || of_sample <= kOfSample));
  }

  // With fewer a call would cost too much, above all at one position; with
  // more, the tiles of x, its cotangent and the sums would leave the cache.
  static int64_t lanes_of(const GroupGeometry& of) {
    constexpr int64_t kElements = 2048; // of a tile
    auto of_group = of.positions * (of.channels / of.groups);
    auto least = of.positions == 1 ? 2 * kRowMultiple : kRowMultiple;
    auto most = std::min(padded(of.samples * of.groups), kMaxLanes);
    auto lanes =
        std::max(kElements / of_group / kRowMultiple * kRowMultiple, least);
    return std::min(lanes, most);
  }

  RowBlocks batches() const {
    auto count = (of.samples + of_batch - 1) / of_batch;
    return blocks_by_threads(count, of_batch * of.positions * of.channels);
  }
  // The sample past a batch's last.
  int64_t end_of(int64_t batch) const {
    return std::min((batch + 1) * of_batch, of.samples);
  }

  // Calls f(first, count) for the groups of each tile of so many samples.
  template <typename F>
  void for_tiles(int64_t samples, F f) const {
    auto groups = samples * of.groups;
    for (int64_t first = 0; first < groups; first += at_once) {
      f(first, std::min(at_once, groups - first));
    }
  }
};

// Where the elements of some groups are that a tile takes.
class LanePlaces {
 public:
  // Those of so many groups at some positions of a sample, of which the next
  // one is `of_sample` elements later.
  LanePlaces(
      const GroupLanes& lanes,
      int64_t first,
      int64_t count,
      int64_t positions,
      int64_t of_sample)
      : lanes_(lanes),
        positions_(positions),
        count_(count) {
    auto groups = lanes.of.groups;
    auto apart = lanes.of.strided ? 1 : lanes.of_group;
    auto start = first / groups * of_sample, group = first % groups;
    for (int64_t lane = 0; lane < count; ++lane) {
      starts_[lane] = start + group * apart;
      if (++group == groups) {
        group = 0;
        start += of_sample;
      }
    }
  }

  void to_tile(const float* from, FloatRow& tile) const {
    copy<true>(from, tile.data());
  }
  void from_tile(const FloatRow& tile, float* to) const {
    copy<false>(tile.data(), to);
  }

 private:
  // A function of its own, whose loops keep what they need in registers. Where
  // channels adjoin, squares of four lanes are transposed.
  template <bool kToTile>
  [[gnu::noinline]] void copy(const float* from, float* to) const {
    const auto& of = lanes_.of;
    auto channels = lanes_.of_group, pitch = lanes_.lanes, count = count_;
    auto step = of.strided ? of.groups : 1;
    auto fours = step == 1 ? channels / 4 * 4 : 0;
    auto* starts = starts_.data();
    bool adjoin = starts[count - 1] - starts[0] == count - 1;
    auto move = [=](int64_t here, int64_t there) {
      to[kToTile ? there : here] = from[kToTile ? here : there];
    };
    for (int64_t p = 0, row = 0; p < positions_; ++p) {
      auto at = p * of.channels;
      for (int64_t i = 0; i < fours; i += 4, row += 4 * pitch) {
        int64_t lane = 0;
        for (; lane + 4 <= count; lane += 4) {
          int64_t here[4], there[4];
          for (int j = 0; j < 4; ++j) {
            here[j] = starts[lane + j] + at + i;
            there[j] = row + j * pitch + lane;
          }
          transpose(from, kToTile ? here : there, to, kToTile ? there : here);
        }
        for (; lane < count; ++lane) {
          for (int j = 0; j < 4; ++j) {
            move(starts[lane] + at + i + j, row + j * pitch + lane);
          }
        }
      }
      for (auto i = fours; i < channels; ++i, row += pitch) {
        auto element = at + i * step;
        for (int64_t lane = 0; adjoin && lane < count; ++lane) {
          move(starts[0] + element + lane, row + lane);
        }
        for (int64_t lane = 0; !adjoin && lane < count; ++lane) {
          move(starts[lane] + element, row + lane);
        }
      }
    }
  }

  static void transpose(
      const float* from,
      const int64_t (&rows)[4],
      float* to,
      const int64_t (&columns)[4]) {
    typedef float Four __attribute__((vector_size(16)));
    Four v[4];
    for (int j = 0; j < 4; ++j) {
      std::memcpy(&v[j], from + rows[j], sizeof(Four));
    }
    Four a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
    Four b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
    Four c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    Four d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
    for (int j = 0; j < 4; ++j) {
      std::memcpy(to + columns[j], &v[j], sizeof(Four));
    }
  }

  const GroupLanes& lanes_;
  int64_t positions_;
  int64_t count_;
  std::array<int64_t, GroupLanes::kMaxLanes> starts_;
};

// The rows of an array in float32, one after another: in place, or copied.
class DenseRows {
 public:
  explicit DenseRows(const array& a)
      : runs_({&a}),
        rows_(rows_in(a, runs_.row_stride(0))),
        width_(a.shape(-1)),
        dense_(a.flags().row_contiguous) {}

  const float* from(int64_t begin, int64_t end, FloatRow& copy) const {
    auto values = (end - begin) * width_;
    auto dense = cpu::from(rows_, begin * width_);
    if (dense_ && rows_.type == Float::f32) {
      return static_cast<const float*>(dense.data);
    }
    copy.resize(values + kRowMultiple);
    auto* row = copy.data();
    if (dense_) {
      kernels().load(dense, 0, values, row);
      return row;
    }
    runs_.for_each(
        begin, end, [&](int64_t, int64_t count, const auto& offsets) {
          auto run = cpu::from(rows_, offsets[0]);
          for (int64_t i = 0; i < count; ++i, row += width_) {
            kernels().load(run, i, width_, row);
          }
        });
    return copy.data();
  }

 private:
  RowRuns runs_;
  RowsIn rows_;
  int64_t width_;
  bool dense_;
};

// Some elements of a result, which may be absent, in float32 until they are
// stored.
class DenseResult {
 public:
  DenseResult(const RowsOut& out, int64_t begin, int64_t end, FloatRow& copy)
      : out_(out.data ? from(out, begin) : out),
        count_(end - begin) {
    if (out.type != Float::f32) {
      copy.resize(count_);
    }
    data_ =
        out.type == Float::f32 ? static_cast<float*>(out_.data) : copy.data();
  }

  float* data() const {
    return data_;
  }
  void store() const {
    if (out_.type != Float::f32) {
      kernels().store(data_, count_, out_);
    }
  }

 private:
  RowsOut out_;
  int64_t count_;
  float* data_;
};

// A weight or bias of the channels of each tile.
class LaneParameter {
 public:
  LaneParameter(const GroupLanes& of, const Parameter& p, float absent)
      : of_(of),
        one_(p.n_rows == 0) {
    auto size = of.of_group * of.lanes;
    auto groups = one_ ? 1 : std::max(of.of.groups, of.at_once);
    rows_.assign((groups + of.at_once - 1) / of.at_once * size, absent);
    FloatParameter values(p);
    for (int64_t first = 0; !one_ && first < groups; first += of.at_once) {
      auto count = std::min(of.at_once, groups - first);
      FloatRow row(size);
      LanePlaces(of, first, count, 1, 0).to_tile(values.data(), row);
      std::ranges::copy(row, rows_.begin() + first / of.at_once * size);
    }
  }

  // The parameters of the groups from `first` of a batch.
  const float* at(int64_t first) const {
    auto tile = one_ ? 0 : first / of_.at_once;
    return rows_.data() + tile * of_.of_group * of_.lanes;
  }

 private:
  const GroupLanes& of_;
  bool one_;
  FloatRow rows_;
};

} // namespace mlx_norms::cpu
