// Copyright © 2026 mlx_norms contributors

#include "csrc/common/checks.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/channels/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/few_rows.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/norm.h"
#include "csrc/op/node.h"

namespace mlx_norms {

mx::Shape NormVJP::shape(const Arrays& inputs, size_t i) const {
  NormInputs in(norm.operands, inputs.data());
  auto operand = wanted.at(i);
  auto* weight = in[kWeight];
  if (operand == kX || operand == kGate) {
    return in.x().shape();
  }
  if (norm.grouped) {
    return per_sample(norm, in.x(), in.x().shape(-1));
  }
  return operand == kWeight || (weight && weight->ndim() > 1)
      ? weight->shape()
      : mx::Shape{in.x().shape(norm.axis)};
}

Donors NormVJP::donors(const Arrays& inputs, size_t i, mx::Stream s) const {
  auto operand = wanted.at(i);
  NormInputs in(norm.operands, inputs.data());
  if (operand == kWeight || operand == kBias || reads_rows_again(in.x(), s)) {
    return {};
  }
  return operand == kX ? Donors{in[kCotangent], in[kSumCotangent], &in.x()}
                       : Donors{in[kGate]};
}

bool NormVJP::is_empty(const Arrays& inputs) const {
  return norm.is_of_rows() ? inputs[0].shape(-1) == 0 : Op::is_empty(inputs);
}

void NormVJP::check(const Arrays& inputs) const {
  NormInputs in(norm.operands, inputs.data());
  if (norm.grouped) {
    check_groups(name(), norm, in);
    return check_same_shape(name(), "cotangent", *in[kCotangent], in.x());
  }
  for (auto operand : norm.operands.without({kX, kWeight})) {
    auto* argument = kOperandTraits[operand].name;
    check_same_shape(name(), argument, *in[operand], in.x());
  }
  if (norm.axis != -1) {
    check_channels(name(), norm.axis, in);
  } else if (auto* weight = in[kWeight]) {
    check_broadcasts(name(), "weight", *weight, in.x());
    if (!row_groups(weight->shape(), in.x().shape())) {
      refuse(
          name(),
          "weight has no row for each group of x's rows: its shape is " +
              text(weight->shape()) + ", x's " + text(in.x().shape()) + ".");
    }
  }
}

Arrays NormVJP::fallback(const Arrays& inputs, mx::Stream s) const {
  NormInputs in(norm.operands, inputs.data());
  return in_order(fallback_gradients(norm, in, wanted, s), wanted, dtypes, s);
}

void NormVJP::append_key(
    const Arrays& inputs,
    mx::Stream s,
    std::vector<int64_t>& numbers) const {
  norm.append_key(numbers);
  numbers.push_back(wanted.bits());
  if (norm.grouped) {
    return append_samples(*this, inputs[0], numbers);
  }
  if (norm.axis != -1) {
    return append_columns(norm, inputs[0], numbers);
  }
  append_ways(inputs, norm.operands, numbers);
  numbers.push_back(groups_of(inputs).adjoin);
  numbers.push_back(stores_gradients(inputs, s));
}

OpPtr NormVJP::sampled(const Arrays& inputs, mx::Stream) const {
  auto few = norm.grouped ? few_groups(*this, inputs[0]) : norm.flags();
  return shared(NormVJP(few, wanted, dtypes));
}

// Has so many rows that parameters' gradients add up several partial sums,
// unless one loop has all of each group.
Arrays NormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  if (norm.grouped) {
    return few_samples(*this, inputs, s);
  }
  if (norm.axis != -1) {
    return few_places(norm, inputs, 6, s);
  }
  int length = inputs[0].shape(-1);
  mx::Shape x{2, stores_gradients(inputs, s) ? 2 : 10, 2, length};
  auto few = few_rows(inputs, norm.operands, x, /* large= */ false, s);
  if (groups_of(inputs).adjoin) {
    few[1] = mx::reshape(few[1], {2, 1, 1, length}, s);
  }
  return few;
}

RowGroups NormVJP::groups_of(const Arrays& inputs) const {
  NormInputs in(norm.operands, inputs.data());
  auto* weight = in[kWeight];
  return weight && norm.is_of_rows()
      ? *row_groups(weight->shape(), in.x().shape())
      : RowGroups{1, false};
}

Gradients norm_gradients(
    NormSpec norm,
    const NormInputs& in,
    Operands wanted,
    const PerOperand<std::optional<mx::Dtype>>& given,
    mx::Stream stream) {
  if (wanted == Operands{}) {
    return {};
  }
  norm.operands = in.present();
  Dtypes dtypes;
  for (auto operand : wanted) {
    auto of_its_own = operand == kX ? in.x().dtype() : mx::float32;
    dtypes.push_back(given[operand].value_or(of_its_own));
  }
  auto found = make(NormVJP{norm, wanted, dtypes}, in.arrays(), stream);
  Gradients gradients;
  for (auto operand : wanted) {
    gradients[operand] = std::move(found[wanted.index_of(operand)]);
  }
  return gradients;
}

Arrays in_order(
    const Gradients& gradients,
    Operands wanted,
    const Dtypes& dtypes,
    mx::Stream stream) {
  Arrays all;
  for (auto operand : wanted) {
    all.push_back(mx::astype(*gradients[operand], dtypes[all.size()], stream));
  }
  return all;
}

} // namespace mlx_norms
