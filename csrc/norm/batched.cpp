// Copyright © 2026 mlx_norms contributors
//
// The norms' vmap.

#include <numeric>

#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/split.h"

namespace mlx_norms {

namespace {

// Broadcasts a, a batch of one, to the batch size of `like`. The size comes
// from a sum, so that it is not part of the graph.
array broadcast_batch(const array& a, const array& like, mx::Stream s) {
  std::vector<int> axes(like.ndim() - 1);
  std::iota(axes.begin(), axes.end(), 1);
  auto sums = sum_over(like, axes, /* keepdims= */ false, s);
  mx::Shape column(a.ndim(), 1);
  column[0] = -1;
  return mx::broadcast_arrays({a, mx::reshape(sums, column, s)}, s)[0];
}

} // namespace

Arrays Norm::mapped(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  auto operands = spec.operands;
  auto n_inputs = static_cast<int>(inputs.size());
  auto is_mapped = [&](Operand operand, int tensor = 0) {
    return operands.has(operand) &&
        axes[tensor + operands.index_of(operand)] >= 0;
  };
  if (spec.factor_of_sum && is_mapped(kFactor)) {
    // The kernel accepts one element, so each example's sum is made before it.
    auto apart = [&](const Arrays& in) {
      NormInputs of(operands, in.data());
      auto sum = sum_of(spec, of, s);
      of[kX] = &sum;
      of[kResidual] = of[kFactor] = nullptr;
      auto y = make_norm(spec.without_sum(), dtypes[0], of.arrays(), s)[0];
      return Arrays{y, sum};
    };
    return mx::vmap(Function(apart), axes)(inputs);
  }
  for (int i = 0; i < n_inputs; i += spec.n_inputs()) {
    if (!is_mapped(kWeight, i) && !is_mapped(kBias, i)) {
      continue;
    }
    // The kernel accepts one weight, so each example's is applied after it.
    auto split = [&](const Arrays& in) {
      Arrays outputs;
      for (int j = 0; j < n_inputs; j += spec.n_inputs()) {
        NormInputs of(operands, &in[j]);
        auto tensor = split_norm(spec, dtypes[0], of, s);
        outputs.insert(outputs.end(), tensor.begin(), tensor.end());
      }
      return outputs;
    };
    return mx::vmap(Function(split), axes)(inputs);
  }

  auto batch = inputs;
  int n_rows = 1 + spec.has(kResidual) + spec.has(kResidual2);
  std::vector<int> without_batch; // tensors, by their first input
  for (int i = 0; i < n_inputs; i += spec.n_inputs()) {
    auto rows = with_leading_batch(
        Arrays(&inputs[i], &inputs[i] + n_rows),
        std::vector<int>(&axes[i], &axes[i] + n_rows),
        s);
    std::copy(rows.begin(), rows.end(), batch.begin() + i);
    bool no_rows_batched = !any_batched(axes, i, i + n_rows);
    for (auto operand :
         operands.without({kX, kResidual, kResidual2, kWeight, kBias})) {
      if (!is_mapped(operand, i)) {
        continue;
      }
      int j = i + operands.index_of(operand);
      batch[j] = with_leading_axis(inputs[j], axes[j], s);
      std::vector<int> missing(batch[i].ndim() - batch[j].ndim());
      std::iota(missing.begin(), missing.end(), 1);
      batch[j] = expand_in_turn(batch[j], missing, s);
      for (int row = i; no_rows_batched && row < i + n_rows; ++row) {
        batch[row] = broadcast_batch(batch[row], batch[j], s);
      }
      no_rows_batched = false;
    }
    if (no_rows_batched) {
      without_batch.push_back(i);
    }
  }
  auto outputs = node(*this, batch, s);
  for (auto i : without_batch) {
    // It was normalized once, as a batch of one; the other tensor has the
    // batch.
    auto out = i / spec.n_inputs() * spec.n_outputs();
    auto other = i == 0 ? spec.n_inputs() : 0;
    for (int j = out; j < out + spec.n_outputs(); ++j) {
      outputs[j] = broadcast_batch(outputs[j], batch[other], s);
    }
  }
  return outputs;
}

Arrays NormVJP::mapped(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  // The kernel sums a parameter's gradient over all rows, not per example, and
  // accepts one weight, of which a batch may have other groups of rows.
  bool has_weight = norm.has(kWeight);
  bool weight_batched = has_weight && (axes[1] >= 0 || inputs[1].ndim() > 2);
  if (weight_batched || wanted.has_any({kWeight, kBias})) {
    auto split = [&](const Arrays& in) {
      return norm.has(kGate) ? fallback(in, s) : split_norm_vjp(*this, in, s);
    };
    return mx::vmap(Function(split), axes)(inputs);
  }
  // All inputs but the weight are rows.
  auto rows = inputs;
  auto row_axes = axes;
  if (has_weight) {
    rows.erase(rows.begin() + 1);
    row_axes.erase(row_axes.begin() + 1);
  }
  auto batch = with_leading_batch(rows, row_axes, s);
  if (has_weight) {
    batch.insert(batch.begin() + 1, inputs[1]);
  }
  return node(*this, std::move(batch), s);
}

} // namespace mlx_norms
