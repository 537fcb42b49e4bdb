// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/norm_call.h"

#include "csrc/common/checks.h"
#include "csrc/group_norm/group_norm.h"
#include "csrc/norm/norm.h"
#include "mlx/fast_primitives.h"

namespace mlx_norms {

namespace {

void set_inputs(NormCall& call, const array* first) {
  for (auto operand : call.spec.operands) {
    call.in[operand] = *first++;
  }
}

std::optional<NormCall> of_groups(const GroupNorm& op, const array& output) {
  if (op.spec.one_channel_each()) {
    return std::nullopt;
  }
  NormCall call{op.spec, op.dtypes[0], output.primitive().stream()};
  call.groups = op.spec;
  set_inputs(call, output.inputs().data());
  return call;
}

// MLX puts one element in the place of a parameter that is not given.
std::optional<NormCall> of_mlx(const array& output, bool center, float eps) {
  const auto& in = output.inputs();
  if (!takes_dtype(in[0].dtype()) || !takes_dtype(output.dtype()) ||
      !(eps >= 0.0f)) {
    return std::nullopt;
  }
  NormCall call{
      {.center = center, .eps = eps},
      output.dtype(),
      output.primitive().stream()};
  call.set(kX, in[0]);
  for (size_t i = 1; i < in.size(); ++i) {
    if (in[i].ndim() > 0) {
      call.set(i == 1 ? kWeight : kBias, in[i]);
    }
  }
  return call;
}

} // namespace

std::optional<Made> made_of(OpPtr op, Arrays inputs, mx::Stream stream) {
  if (!has_kernel(op, inputs, stream)) {
    return std::nullopt;
  }
  return Made{std::make_shared<Node>(stream, std::move(op)), std::move(inputs)};
}

std::optional<NormCall> NormCall::of(const array& output) {
  auto name = name_of(output);
  if (is_mlx_norm(name)) {
    return name == "RMSNorm"
        ? of_mlx(output, false, state_of<mx::fast::RMSNorm>(output).second)
        : of_mlx(output, true, state_of<mx::fast::LayerNorm>(output).second);
  }
  if (!name.starts_with("mlx_norms::")) {
    return std::nullopt;
  }
  if (auto* norm = op_of<Norm>(output)) {
    const auto& spec = norm->spec;
    if (!norm->others.empty() || spec.norm_first || spec.is_multiplied()) {
      return std::nullopt;
    }
    NormCall call{norm->spec, norm->dtypes[0], output.primitive().stream()};
    set_inputs(call, output.inputs().data());
    return call;
  }
  auto* norm = op_of<GroupNorm>(output);
  return norm ? of_groups(*norm, output) : std::nullopt;
}

Arrays NormCall::inputs() const {
  Arrays arrays;
  for (auto operand : spec.operands) {
    arrays.push_back(*in[operand]);
  }
  return arrays;
}

Arrays NormCall::statistics() const {
  Arrays arrays;
  for (int i = 1; groups && i < groups->n_outputs(); ++i) {
    GroupNorm op(*groups, dtype);
    arrays.push_back(mx::zeros(op.shape({x()}, i), op.dtypes[i], stream));
  }
  return arrays;
}

std::optional<Made> NormCall::made() const {
  if (groups) {
    auto of = *groups;
    static_cast<NormSpec&>(of) = spec;
    of.rounding = Rounding::Late;
    return made_of(shared(GroupNorm(of, dtype)), inputs(), stream);
  }
  auto arrays = inputs();
  return made_of(shared(Norm(spec, dtype, arrays)), arrays, stream);
}

} // namespace mlx_norms
