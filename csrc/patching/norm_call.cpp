// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/norm_call.h"

#include "csrc/patching/written_op.h"

namespace mlx_norms {

std::optional<NormCall> NormCall::of(const array& output) {
  auto* norm = op_of<Norm>(output);
  if (!norm) {
    return std::nullopt;
  }
  const auto& [spec, dtypes, others] = *norm;
  const auto& inputs = output.inputs();
  if (!others.empty() || spec.is_multiplied()) {
    return std::nullopt;
  }
  NormCall call{spec, dtypes[0], {}, output.primitive().stream()};
  auto* input = inputs.data();
  for (auto operand : spec.operands) {
    call.in[operand] = *input++;
  }
  return call;
}

NormCall NormCall::of(const InlineNorm& found) {
  const auto& norm = found.norm;
  NormCall call{spec_of(norm), norm.dtype, {}, found.stream};
  call.in[kX] = found.x;
  for (auto [operand, i] :
       {std::pair(kWeight, norm.weight), {kBias, norm.bias}}) {
    if (i) {
      call.in[operand] = as_vector(&found.parameters[*i], found.stream);
    }
  }
  return call;
}

Arrays NormCall::inputs(Operands of) const {
  Arrays arrays;
  for (auto operand : of) {
    arrays.push_back(*in[operand]);
  }
  return arrays;
}

bool NormCall::runs() const {
  auto arrays = inputs();
  return has_kernel(Norm(spec, dtype, arrays), arrays, stream);
}

std::shared_ptr<mx::Primitive> NormCall::node() const {
  return std::make_shared<Node<Norm>>(stream, Norm(spec, dtype, inputs()));
}

} // namespace mlx_norms
