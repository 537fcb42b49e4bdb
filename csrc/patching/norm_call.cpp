// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/norm_call.h"

#include "csrc/common/checks.h"
#include "csrc/norm/norm.h"
#include "mlx/fast_primitives.h"

namespace mlx_norms {

namespace {

void set_inputs(NormCall& call, const array* first) {
  for (auto operand : call.spec.operands) {
    call.in[operand] = *first++;
  }
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
    bool of_channels = spec.grouped && spec.groups == 0;
    if (!norm->others.empty() || spec.norm_first || spec.is_multiplied() ||
        of_channels) {
      return std::nullopt;
    }
    NormCall call{spec, norm->dtypes[0], output.primitive().stream()};
    set_inputs(call, output.inputs().data());
    return call;
  }
  return std::nullopt;
}

Arrays NormCall::inputs() const {
  Arrays arrays;
  arrays.reserve(spec.operands.count());
  for (auto operand : spec.operands) {
    arrays.push_back(*in[operand]);
  }
  return arrays;
}

Arrays NormCall::statistics() const {
  Arrays arrays;
  for (int i = 1; spec.grouped && i < spec.n_outputs(); ++i) {
    Norm op(spec, dtype, inputs());
    arrays.push_back(mx::zeros(op.shape({x()}, i), op.dtypes[i], stream));
  }
  return arrays;
}

std::optional<Made> NormCall::made() const {
  auto arrays = inputs();
  return made_of(shared(Norm(spec, dtype, arrays)), arrays, stream);
}

} // namespace mlx_norms
