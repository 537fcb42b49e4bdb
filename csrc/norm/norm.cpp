// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/norm.h"

#include <algorithm>
#include <numeric>

#include "csrc/common/checks.h"
#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/few_rows.h"
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

Operand operand_at(const NormSpec& spec, size_t i) {
  return spec.operands.at(static_cast<int>(i) % spec.n_inputs());
}

} // namespace

Norm::Norm(const NormSpec& spec, mx::Dtype dtype, const Arrays& inputs)
    : spec(spec) {
  for (size_t i = 0; i < inputs.size(); i += spec.n_inputs()) {
    dtypes.push_back(dtype);
    if (spec.has(kResidual)) {
      dtypes.push_back(mx::result_type(inputs[i], inputs[i + 1]));
    }
  }
}

const char* Norm::name() const {
  if (spec.l2) {
    return "mlx_norms::L2Norm";
  }
  if (spec.has(kResidual)) {
    return spec.center ? "mlx_norms::AddLayerNorm" : "mlx_norms::AddRMSNorm";
  }
  return spec.center ? "mlx_norms::LayerNorm" : "mlx_norms::RMSNorm";
}

Donors Norm::donors(const Arrays& inputs, size_t i, mx::Stream) const {
  auto tensor = i / spec.n_outputs();
  NormInputs in(spec.operands, &inputs[tensor * spec.n_inputs()]);
  bool is_sum = i % spec.n_outputs() != 0;
  return is_sum ? Donors{in[kResidual], &in.x()}
                : Donors{&in.x(), in[kResidual], in[kGate]};
}

void Norm::check(const Arrays& inputs) const {
  for (auto* a = inputs.data(); a != inputs.data() + inputs.size();) {
    const auto& x = *a++;
    for (auto operand : spec.operands.without({kX})) {
      auto* argument = kOperandTraits[operand].name;
      if (operand == kFactor && spec.factor_of_sum) {
        check_one_element(name(), argument, *a++);
      } else if (kOperandTraits[operand].kind == OperandKind::Vector) {
        check_head_weight(name(), argument, *a++, "x", x);
      } else if (operand == kResidual) {
        check_same_shape(name(), argument, *a++, x);
      } else {
        // A gate, too: of a batch of examples it may be the same for each.
        check_broadcasts(name(), argument, *a++, x);
      }
    }
  }
}

Arrays Norm::fallback(const Arrays& inputs, mx::Stream s) const {
  return fallback_norms(spec, dtypes[0], inputs, s);
}

void Norm::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  spec.append_key(numbers);
  append_layouts(
      inputs, numbers, [&](size_t i) { return operand_at(spec, i); });
}

Norm Norm::sampled(const Arrays&, mx::Stream) const {
  auto few = *this;
  few.spec = spec.flags();
  return few;
}

Arrays Norm::sample(const Arrays& inputs, mx::Stream s) const {
  auto few = few_rows(inputs, 2, /* large= */ spec.clamp, s, [&](size_t i) {
    return operand_at(spec, i);
  });
  if (spec.factor_of_sum) {
    auto at = spec.operands.index_of(kFactor);
    few[at] =
        self_check::values({1}, few[at].dtype(), 17 * at + 1, spec.clamp, s);
  }
  return few;
}

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
  int n_rows = 1 + spec.has(kResidual);
  std::vector<int> without_batch; // tensors, by their first input
  for (int i = 0; i < n_inputs; i += spec.n_inputs()) {
    auto rows = with_leading_batch(
        Arrays(&inputs[i], &inputs[i] + n_rows),
        std::vector<int>(&axes[i], &axes[i] + n_rows),
        s);
    std::copy(rows.begin(), rows.end(), batch.begin() + i);
    bool no_rows_batched = !any_batched(axes, i, i + n_rows);
    for (auto operand : operands.without({kX, kResidual, kWeight, kBias})) {
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

Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  Norm norm(spec, dtype, inputs);
  return make(std::move(norm), std::move(inputs), stream);
}

} // namespace mlx_norms
