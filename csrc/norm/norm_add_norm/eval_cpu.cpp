// Copyright © 2026 mlx_norms contributors
//
// The two norms of a few rows at a time: what is between them stays in the
// cache.

#include "csrc/cpu/row_blocks.h"
#include "csrc/cpu/row_runs.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/op/node.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

using namespace cpu;

namespace {

// As many as fit in the L1 cache in float32.
int64_t rows_at_once(int64_t width) {
  constexpr int64_t kElements = 4096;
  return std::max<int64_t>(kElements / width, 1);
}

} // namespace

void eval_norm_add_norm(
    const NormSpec& spec,
    const NormInputs& in,
    Arrays& outputs,
    mx::Stream stream) {
  if (outputs[0].size() == 0) {
    return;
  }
  const auto &x = in.x(), &residual = *in[kResidual];
  auto* factor = in[kFactor];
  bool late = spec.rounding == Rounding::Late;
  // Rows of x where there is no factor.
  RowRuns runs({&x, &residual, factor ? factor : &x});

  NormJob of_x{options_of(spec.first_norm())};
  of_x.width = x.shape(-1);
  of_x.in[kX] = rows_in(x, runs.row_stride(0));
  NormJob of_sum{options_of(spec.second_norm())};
  of_sum.width = of_x.width;
  of_sum.in[kResidual] = rows_in(residual, runs.row_stride(1));
  if (factor) {
    of_sum.in[kFactor] = rows_in(*factor, runs.row_stride(2));
  }
  Parameter post_weight(in[kPostWeight], spec.weight_offset);
  Parameter weight(in[kWeight], spec.weight_offset);
  // The type of x's norm.
  auto between = late ? Float::f32 : of_x.in[kX].type;

  of_sum.normalized = rows_out(outputs[0]);
  of_sum.sum = rows_out(outputs[1]);

  auto width = of_x.width;
  auto blocks = blocks_by_threads(x.size() / width, width);
  mx::cpu::get_command_encoder(stream).dispatch([=]() {
    auto w_of_x = weight_or_ones(post_weight, width);
    auto w_of_sum = weight_or_ones(weight, width);
    blocks.for_each([&](int, int64_t begin, int64_t end) {
      auto max = rows_at_once(width);
      Scratch scratch(width, scratch_rows(width));
      Scratch normalized(width, max);
      // So many rows after them are next.
      auto compute = [&](int64_t row,
                         int64_t rows,
                         int64_t after,
                         RowsIn x,
                         RowsIn residual,
                         RowsIn factor) {
        auto first = of_x;
        first.rows = rows;
        first.rows_after = after;
        first.in[kX] = x;
        first.normalized = {normalized.data(), between};
        first.weight = {w_of_x.data(), 1};
        first.scratch = scratch.data();
        kernels().norm(first);
        auto second = of_sum;
        second.rows = rows;
        second.rows_after = after;
        second.in[kX] = {normalized.data(), between, width, 1};
        second.in[kResidual] = residual;
        second.in[kFactor] = factor;
        second.normalized = from(of_sum.normalized, row * width);
        second.sum = from(of_sum.sum, row * width);
        second.weight = {w_of_sum.data(), 1};
        second.scratch = scratch.data();
        kernels().norm(second);
      };
      runs.for_each(
          begin,
          end,
          [&](int64_t first_row, int64_t n_rows, const auto& offsets) {
            auto x = from(of_x.in[kX], offsets[0]);
            auto residual = from(of_sum.in[kResidual], offsets[1]);
            auto factor = of_sum.in[kFactor];
            if (factor.data) {
              factor = from(factor, offsets[2]);
            }
            for (int64_t row = 0; row < n_rows; row += max) {
              auto rows = std::min(max, n_rows - row);
              compute(
                  first_row + row,
                  rows,
                  n_rows - row - rows,
                  from(x, row * x.row_stride),
                  from(residual, row * residual.row_stride),
                  factor.data ? from(factor, row * factor.row_stride) : factor);
            }
          });
    });
  });
}

} // namespace mlx_norms
