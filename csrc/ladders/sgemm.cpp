// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/sgemm.h"

#include "csrc/common/checks.h"

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

// The kernels read contiguous rows.
auto times_by(const Rung& rung, mx::Stream s) {
  return [&rung, s](const array& a, const array& b) {
    return product_by(
        SgemmRung{&rung},
        mx::contiguous(a, /* allow_col_major= */ false, s),
        mx::contiguous(b, /* allow_col_major= */ false, s),
        s);
  };
}

} // namespace

// Shapeless compile asks again at every call, whose shapes may not fit.
mx::Shape SgemmRung::shape(const Arrays& inputs) const {
  check(inputs);
  return product_shape(inputs[0], inputs[1]);
}

void SgemmRung::check(const Arrays& inputs) const {
  check_factors(kOp, inputs[0], inputs[1]);
}

Arrays SgemmRung::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums,
    mx::Stream s) const {
  return product_jvp(times_by(*rung, s), primals, tangents, argnums, s);
}

Arrays SgemmRung::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&,
    mx::Stream s) const {
  auto times = times_by(*rung, s);
  return product_vjp(times, primals, cotangents[0], argnums, s);
}

Arrays SgemmRung::mapped(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  auto factors = mapped_factors(inputs, axes, s);
  return {times_by(*rung, s)(factors[0], factors[1])};
}

mx::array sgemm_by_rung(
    const mx::array& a,
    const mx::array& b,
    const std::string& name,
    mx::StreamOrDevice s) {
  const auto& rung = find_rung(kOp, sgemm_rungs(), name);
  check_factors(kOp, a, b);
  check_dtype(rung, "a", a);
  check_dtype(rung, "b", b);
  auto stream = mx::to_stream(s);
  require_gpu_kernels(kOp, "rung \"" + name + "\"", stream);
  return times_by(rung, stream)(a, b);
}

} // namespace mlx_norms
