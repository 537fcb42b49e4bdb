// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_op.h"

#include "csrc/norm/ops.h"

namespace mlx_norms {

namespace {

array bare(
    const WrittenNorm& norm,
    const array& x,
    const array* weight,
    const array* bias) {
  const OptionalString rounding =
      norm.rounding == Rounding::Early ? "early" : "late";
  if (norm.kind == WrittenNorm::Kind::L2) {
    return l2_norm(x, norm.eps, !norm.eps_bounds, norm.dtype, {});
  }
  if (norm.kind == WrittenNorm::Kind::Layer) {
    return layer_norm(
        x,
        weight,
        bias,
        norm.eps,
        norm.weight_offset,
        rounding,
        /* scale= */ {},
        /* shift= */ {},
        norm.dtype,
        norm.axis);
  }
  return rms_norm(
      x,
      weight,
      norm.eps,
      norm.weight_offset,
      rounding,
      /* scale= */ {},
      /* shift= */ {},
      /* gate= */ nullptr,
      /* activation= */ {},
      /* norm_before_gate= */ true,
      /* num_groups= */ 1,
      norm.dtype,
      /* group= */ {},
      norm.axis);
}

} // namespace

array compute(
    const WrittenNorm& norm,
    const array& x,
    const array* weight,
    const array* bias) {
  auto weights = as_vector(weight), biases = as_vector(bias);
  return times_number(
      norm, bare(norm, x, pointer_to(weights), pointer_to(biases)));
}

OptionalArray as_vector(const array* parameter) {
  return !parameter            ? std::nullopt
      : parameter->ndim() == 1 ? OptionalArray(*parameter)
                               : OptionalArray(mx::flatten(*parameter));
}

array times_number(const WrittenNorm& norm, array y) {
  return norm.number == 1.0f ? y
                             : mx::multiply(y, array(norm.number, y.dtype()));
}

} // namespace mlx_norms
