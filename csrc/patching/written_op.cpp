// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_op.h"

#include "mlx/ops.h"

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

OptionalArray as_vector(const array* parameter, mx::StreamOrDevice stream) {
  return !parameter            ? std::nullopt
      : parameter->ndim() == 1 ? OptionalArray(*parameter)
                               : OptionalArray(mx::flatten(*parameter, stream));
}

} // namespace mlx_norms
