// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/sgemm.h"

#include "csrc/common/checks.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "sgemm";

void check_dtype(const Rung& rung, const char* argument, const array& a) {
  if (!rung.takes(a.dtype())) {
    refuse(
        kOp,
        std::string(argument) + " must be " + text(rung.dtypes) +
            " for rung \"" + rung.name + "\" but is " + text(a.dtype()) + ".");
  }
}

} // namespace

void SgemmRung::check(const Arrays& inputs) const {
  check_factors(kOp, inputs[0], inputs[1]);
}

// The kernels read contiguous rows.
array SgemmRung::times(const array& a, const array& b, mx::Stream s) const {
  return product_by(
      *this,
      mx::contiguous(a, /* allow_col_major= */ false, s),
      mx::contiguous(b, /* allow_col_major= */ false, s),
      s);
}

array sgemm_by_rung(const SgemmByRung& arguments) {
  const auto &a = *arguments.a, &b = *arguments.b;
  const auto& name = arguments.rung;
  const auto& rung = find_rung(kOp, sgemm_rungs(), name);
  check_factors(kOp, a, b);
  check_dtype(rung, "a", a);
  check_dtype(rung, "b", b);
  auto stream = mx::to_stream(arguments.stream);
  require_gpu_kernels(kOp, "rung \"" + name + "\"", stream);
  return SgemmRung(rung).times(a, b, stream);
}

} // namespace mlx_norms
