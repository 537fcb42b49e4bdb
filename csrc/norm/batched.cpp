// Copyright © 2026 mlx_norms contributors
//
// The norms' vmap.

#include <numeric>

#include "csrc/common/batch.h"
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
  auto is_mapped = [&](const Tensor& tensor, Operand operand) {
    auto operands = tensor.spec.operands;
    return operands.has(operand) &&
        axes[tensor.input + operands.index_of(operand)] >= 0;
  };
  if (spec.factor_of_sum && is_mapped(tensor_of(0), kFactor)) {
    // The kernel accepts one element, so each example's sum is made before it.
    auto apart = [&](const Arrays& in) {
      NormInputs of(spec.operands, in.data());
      auto sum = sum_of(spec, of, s);
      auto arrays = of.without_sum(sum).arrays();
      auto y = make_norm(spec.without_sum(), dtypes[0], arrays, s)[0];
      return Arrays{y, sum};
    };
    return mx::vmap(Function(apart), axes)(inputs);
  }
  bool mapped_parameters = false;
  for_each_tensor([&](const Tensor& tensor) {
    for (auto operand : {kPostWeight, kWeight, kBias, kMean, kVariance}) {
      mapped_parameters |= is_mapped(tensor, operand);
    }
  });
  if (mapped_parameters) {
    // The kernel accepts one weight, so each example's is applied after it.
    auto split = [&](const Arrays& in) {
      if (spec.norm_first || !spec.is_of_rows()) {
        return steps(in, s);
      }
      Arrays outputs;
      for_each_tensor([&](const Tensor& tensor) {
        auto dtype = dtypes[tensor.output];
        auto of = split_norm(tensor.spec, dtype, tensor.in(in), s);
        outputs.insert(outputs.end(), of.begin(), of.end());
      });
      return outputs;
    };
    return mx::vmap(Function(split), axes)(inputs);
  }

  auto batch = inputs;
  int n_rows = spec.operands.only(kAddends).count();
  std::vector<size_t> without_batch; // outputs
  const array* with_batch = nullptr;
  for_each_tensor([&](const Tensor& tensor) {
    auto i = static_cast<int>(tensor.input);
    auto operands = tensor.spec.operands;
    auto rows = with_leading_batch(
        Arrays(&inputs[i], &inputs[i] + n_rows),
        std::vector<int>(&axes[i], &axes[i] + n_rows),
        s);
    std::copy(rows.begin(), rows.end(), batch.begin() + i);
    bool no_rows_batched = !any_batched(axes, i, i + n_rows);
    for (auto operand :
         operands.without(kAddends.with({kPostWeight, kWeight, kBias}))) {
      if (!is_mapped(tensor, operand)) {
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
    if (!no_rows_batched) {
      with_batch = &batch[i];
      return;
    }
    for (int j = 0; j < tensor.spec.n_outputs(); ++j) {
      without_batch.push_back(tensor.output + j);
    }
  });
  auto op = *this;
  op.spec.sample_axes += spec.grouped;
  auto outputs = node(op, batch, s);
  for (auto i : without_batch) {
    // It was normalized once, as a batch of one; another tensor has the batch.
    outputs[i] = broadcast_batch(outputs[i], *with_batch, s);
  }
  return outputs;
}

Arrays NormVJP::mapped(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (norm.grouped) {
    Operands parameters{kWeight, kBias};
    if (norm.has_running_statistics()) {
      parameters = parameters.with({kMean, kVariance});
    }
    auto op = *this;
    op.norm.sample_axes += 1;
    auto batch = inputs;
    for (auto operand : norm.operands) {
      int i = norm.operands.index_of(operand);
      bool is_mapped = axes[i] >= 0;
      if (is_mapped == parameters.has(operand)) {
        return Op::mapped(inputs, axes, s);
      }
      if (is_mapped) {
        batch[i] = with_leading_axis(inputs[i], axes[i], s);
      }
    }
    return node(op, batch, s);
  }
  // The kernel sums a parameter's gradient over all rows, not per example, and
  // accepts one weight, of which a batch may have other groups of rows.
  bool has_weight = norm.has(kWeight);
  bool weight_batched = has_weight && (axes[1] >= 0 || inputs[1].ndim() > 2);
  if (weight_batched || wanted.has_any({kWeight, kBias})) {
    auto split = [&](const Arrays& in) {
      return norm.has(kGate) || !norm.is_of_rows()
          ? fallback(in, s)
          : split_norm_vjp(*this, in, s);
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
