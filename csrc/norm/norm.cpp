// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/norm.h"

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/common/self_check.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/channels/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/few_rows.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/norm/view.h"
#include "csrc/op/node.h"

namespace mlx_norms {

Norm::Norm(const NormSpec& spec, mx::Dtype dtype, const Arrays& inputs)
    : OpOf(Dtypes{dtype}),
      spec(spec) {
  if (spec.has(kResidual)) {
    dtypes.push_back(NormInputs(spec.operands, inputs.data()).sum_dtype());
  }
  dtypes.insert(dtypes.end(), spec.n_outputs() - dtypes.size(), mx::float32);
}

Norm::Tensor Norm::tensor_of(size_t output) const {
  size_t input = spec.n_inputs(), first = spec.n_outputs();
  if (output < first) {
    return {spec, 0, 0};
  }
  auto of = others.begin();
  for (; first < output; ++first, ++of) { // each has one
    input += of->n_inputs();
  }
  return {*of, input, output};
}

const char* Norm::name() const {
  if (spec.l2) {
    return "mlx_norms::L2Norm";
  }
  if (spec.norm_first) {
    return "mlx_norms::NormAddNorm";
  }
  if (spec.grouped) {
    return "mlx_norms::GroupNorm";
  }
  if (spec.axis != -1) {
    return spec.center ? "mlx_norms::ChannelLayerNorm"
                       : "mlx_norms::ChannelRMSNorm";
  }
  if (spec.has(kResidual)) {
    return spec.center ? "mlx_norms::AddLayerNorm" : "mlx_norms::AddRMSNorm";
  }
  return spec.center ? "mlx_norms::LayerNorm" : "mlx_norms::RMSNorm";
}

mx::Shape Norm::shape(const Arrays& inputs, size_t i) const {
  const auto& x = inputs[tensor_of(i).input];
  bool is_statistic = spec.grouped && i > 0;
  return is_statistic ? per_sample(spec, x, View(spec, x).kept) : x.shape();
}

Donors Norm::donors(const Arrays& inputs, size_t i, mx::Stream) const {
  if (spec.grouped && i > 0) {
    return {};
  }
  auto tensor = tensor_of(i);
  auto in = tensor.in(inputs);
  Donors donors = {};
  int n = 0;
  for (auto operand : kAddends.with({kGate})) {
    donors.at(n++) = in[operand];
  }
  if (i != tensor.output) { // the sum, of which x is taken for the norm
    std::swap(donors[0], donors[1]);
  }
  return donors;
}

void Norm::check(const Arrays& inputs) const {
  NormInputs in(spec.operands, inputs.data());
  if (spec.grouped) {
    return check_groups(name(), spec, in);
  }
  if (spec.axis != -1) {
    return check_channels(name(), spec.axis, in);
  }
  for_each_tensor([&](const Tensor& tensor) {
    auto* a = &inputs[tensor.input];
    const auto& x = *a++;
    for (auto operand : tensor.spec.operands.without({kX})) {
      bool weighs_x = operand == kGate && tensor.spec.gate_first &&
          tensor.spec.activation == Activation::None;
      auto* argument =
          weighs_x ? "gate or input_weight" : kOperandTraits[operand].name;
      if (operand == kFactor && spec.factor_of_sum) {
        check_one_element(name(), argument, *a++);
      } else if (kOperandTraits[operand].kind == OperandKind::Vector) {
        check_head_weight(name(), argument, *a++, "x", x);
      } else if (has_shape_of_x(operand)) {
        check_same_shape(name(), argument, *a++, x);
      } else {
        // A gate, too: of a batch of examples it may be the same for each.
        check_broadcasts(name(), argument, *a++, x);
      }
    }
  });
}

bool Norm::is_empty(const Arrays& inputs) const {
  if (!spec.is_of_rows()) {
    return Op::is_empty(inputs);
  }
  bool empty = true; // all of them
  for_each_tensor([&](const Tensor& tensor) {
    empty &= inputs[tensor.input].shape(-1) == 0;
  });
  return empty;
}

Arrays Norm::fallback(const Arrays& inputs, mx::Stream s) const {
  Arrays outputs;
  for_each_tensor([&](const Tensor& tensor) {
    auto dtype = dtypes[tensor.output];
    auto of = fallback_norm(tensor.spec, dtype, tensor.in(inputs), s);
    outputs.insert(outputs.end(), of.begin(), of.end());
  });
  return outputs;
}

bool Norm::suits(const Arrays& inputs, mx::Stream s) const {
  return !spec.norm_first || backend_of(s) == Backend::Cpu ||
      spec.rounding == Rounding::Late ||
      inputs[0].itemsize() == mx::size_of(dtypes[1]);
}

Arrays Norm::steps(const Arrays& inputs, mx::Stream s) const {
  return spec.norm_first
      ? in_two_norms(spec, dtypes[0], {spec.operands, inputs.data()}, s)
      : fallback(inputs, s);
}

void Norm::append_key(
    const Arrays& inputs,
    mx::Stream s,
    std::vector<int64_t>& numbers) const {
  if (!spec.is_of_rows()) {
    spec.append_key(numbers);
    spec.grouped ? append_samples(spec, inputs[0], s, numbers)
                 : append_columns(spec, inputs[0], numbers);
    return;
  }
  for_each_tensor([&](const Tensor& tensor) {
    tensor.spec.append_key(numbers);
    append_ways(tensor.inputs_of(inputs), tensor.spec.operands, numbers);
    numbers.push_back(inputs[tensor.input].size() > 0);
  });
}

OpPtr Norm::sampled(const Arrays& inputs, mx::Stream s) const {
  auto few = *this;
  few.spec = spec.grouped ? few_groups(spec, inputs[0], s) : spec.flags();
  for (auto& other : few.others) {
    other = other.flags();
  }
  return shared(std::move(few));
}

Arrays Norm::sample(const Arrays& inputs, mx::Stream s) const {
  if (spec.grouped) {
    return few_samples(spec, inputs, s);
  }
  if (spec.axis != -1) {
    return few_places(spec, inputs, 4, s);
  }
  Arrays few;
  for_each_tensor([&](const Tensor& tensor) {
    auto given = tensor.inputs_of(inputs);
    auto ways = ways_of(given, tensor.spec.operands);
    auto x = shape_of_rows(std::ranges::max(ways), given[0].shape(-1));
    x[0] = given[0].size() > 0 ? x[0] : 0; // none of its rows are launched
    auto of = few_rows(
        given,
        tensor.spec.operands,
        x,
        /* large= */ spec.clamp,
        s,
        /* seed= */ static_cast<int>(tensor.input));
    few.insert(few.end(), of.begin(), of.end());
  });
  if (spec.factor_of_sum) {
    auto at = spec.operands.index_of(kFactor);
    few[at] =
        self_check::values({1}, few[at].dtype(), 17 * at + 1, spec.clamp, s);
  }
  return few;
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
