// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/channels/checks.h"

#include "csrc/common/checks.h"

namespace mlx_norms {

int channel_axis(const char* op, const mx::array& x, int axis) {
  if (axis == -1) {
    return 0;
  }
  check_rows(op, "x", x);
  int ndim = x.ndim();
  if (axis < -ndim || axis >= ndim) {
    refuse(
        op,
        "axis must be from " + std::to_string(-ndim) + " to " +
            std::to_string(ndim - 1) + " for x of shape " + text(x.shape()) +
            " but is " + std::to_string(axis) + ".");
  }
  int from_end = axis < 0 ? axis : axis - ndim;
  return from_end == -1 ? 0 : from_end;
}

void check_channels(const char* op, int axis, const NormInputs& in) {
  check_dtype(op, "x", in.x().dtype());
  auto check = [&](const char* name, const mx::array* a) {
    if (!a) {
      return;
    }
    check_dtype(op, name, a->dtype());
    mx::Shape channels{in.x().shape(axis)};
    if (a->shape() != channels) {
      refuse(
          op,
          std::string(name) + " must have shape " + text(channels) +
              ", the normalized axis of x, but has " + text(a->shape()) + ".");
    }
  };
  check("weight", in[kWeight]);
  check("bias", in[kBias]);
}

} // namespace mlx_norms
