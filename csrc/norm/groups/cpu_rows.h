// Copyright © 2026 mlx_norms contributors
//
// The rows of arrays as the kernels of group norms take them: of one dtype, and
// of channels that adjoin. Others are copied in float32, some rows at a time.

#pragma once

#include <algorithm>
#include <vector>

#include "csrc/cpu/row_runs.h"
#include "csrc/norm/cpu_parameters.h"

namespace mlx_norms::cpu {

class GroupRows {
 public:
  // Takes arrays of one shape; results go to `out`, if that is not null.
  GroupRows(std::initializer_list<const array*> arrays, const array* out)
      : runs_(arrays),
        channels_((*arrays.begin())->shape(-1)) {
    for (auto* a : arrays) {
      given_.push_back(rows_in(*a, runs_.row_stride(given_.size())));
    }
    auto type = given_[0].type;
    in_place_ = !out || out->dtype() == (*arrays.begin())->dtype() ||
        (given_.size() == 1 && out->dtype() == mx::float32);
    for (const auto& rows : given_) {
      in_place_ = in_place_ && rows.step == 1 && rows.type == type;
    }
  }

  // What a thread needs for the copies.
  Scratch scratch() const {
    auto rows = in_place_ ? 0 : kCopiedRows * (given_.size() + 1);
    return Scratch(channels_, rows);
  }

  // Calls f(first_row, n_rows, inputs) for the rows from begin to end.
  template <typename F>
  void for_each(int64_t begin, int64_t end, const Scratch& scratch, F f) const {
    auto pitch = padded(channels_);
    runs_.for_each(
        begin, end, [&](int64_t first, int64_t count, const auto& offsets) {
          auto at = given_;
          for (size_t i = 0; i < at.size(); ++i) {
            at[i] = from(given_[i], offsets[i]);
          }
          if (in_place_) {
            return f(first, count, at);
          }
          for (int64_t row = 0; row < count; row += kCopiedRows) {
            auto n = std::min(kCopiedRows, count - row);
            auto copies = at;
            auto* to = scratch.data();
            for (size_t i = 0; i < at.size(); ++i) {
              copies[i] = {to, Float::f32, pitch, 1};
              for (int64_t j = 0; j < n; ++j, to += pitch) {
                kernels().load(at[i], row + j, channels_, to);
              }
              to += (kCopiedRows - n) * pitch;
            }
            f(first + row, n, copies);
          }
        });
  }

  // Calls f(to), which writes rows that for_each gave to `out` or, in float32,
  // to what is converted to it.
  template <typename F>
  void write(
      const RowsOut& out,
      int64_t row,
      int64_t count,
      const Scratch& scratch,
      F f) const {
    if (in_place_) {
      return f(from(out, row * channels_));
    }
    auto* copies =
        scratch.data() + kCopiedRows * given_.size() * padded(channels_);
    f(RowsOut{copies, Float::f32});
    for (int64_t i = 0; i < count; ++i) {
      kernels().store(
          copies + i * channels_, channels_, from(out, (row + i) * channels_));
    }
  }

 private:
  static constexpr int64_t kCopiedRows = 16;

  RowRuns runs_;
  int64_t channels_;
  std::vector<RowsIn> given_;
  bool in_place_;
};

} // namespace mlx_norms::cpu
