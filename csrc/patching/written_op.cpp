// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_op.h"

#include "csrc/norm/channels/channel_norm.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

NormSpec spec_of(const WrittenNorm& norm) {
  NormSpec spec{
      .center = norm.kind == WrittenNorm::Kind::Layer,
      .l2 = norm.kind == WrittenNorm::Kind::L2,
      .eps_bounds = norm.eps_bounds,
      .rounding = norm.rounding,
      .weight_offset = norm.weight_offset,
      .eps = norm.eps};
  spec.operands.set(kWeight, norm.weight.has_value());
  spec.operands.set(kBias, norm.bias.has_value());
  return spec;
}

array compute(
    const WrittenNorm& norm,
    const array& x,
    const array* weight,
    const array* bias,
    const array* factor) {
  Arrays inputs{x};
  for (auto* parameter : {weight, bias}) {
    if (auto vector = as_vector(parameter)) {
      inputs.push_back(std::move(*vector));
    }
  }
  auto stream = mx::to_stream({});
  auto spec = spec_of(norm);
  int from_end = norm.axis - static_cast<int>(x.ndim());
  auto y = from_end == -1
      ? make_norm(spec, norm.dtype, std::move(inputs), stream)[0]
      : make(ChannelNorm{spec, from_end, norm.dtype}, inputs, stream);
  return times_factors(norm, std::move(y), factor);
}

OptionalArray as_vector(const array* parameter, mx::StreamOrDevice stream) {
  return !parameter            ? std::nullopt
      : parameter->ndim() == 1 ? OptionalArray(*parameter)
                               : OptionalArray(mx::flatten(*parameter, stream));
}

array times_factors(const WrittenNorm& norm, array y, const array* factor) {
  if (norm.number != 1.0f) {
    y = mx::multiply(y, array(norm.number, y.dtype()));
  }
  return factor ? mx::astype(mx::multiply(y, *factor), norm.output) : y;
}

} // namespace mlx_norms
