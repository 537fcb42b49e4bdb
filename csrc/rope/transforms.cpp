// Copyright © 2026 mlx_norms contributors
//
// Derivatives and maps: those of a norm and a rotation, of which the latter is
// linear, and its transpose a rotation back.

#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/norm/checks.h"
#include "csrc/op/node.h"
#include "csrc/rope/norm_rope.h"

namespace mlx_norms {

Arrays NormRope::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums,
    mx::Stream s) const {
  if (normalized || argnums != std::vector{0}) {
    return Op::jvp(primals, tangents, argnums, s);
  }
  auto inputs = primals;
  inputs[0] = tangents[0];
  return make(*this, std::move(inputs), s);
}

Arrays NormRope::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs,
    mx::Stream s) const {
  for (auto i : argnums) {
    if (i >= offset_at()) {
      refuse(name(), "vjp for offset or freqs is not supported.");
    }
  }
  if (normalized) {
    return Op::vjp(primals, cotangents, argnums, outputs, s);
  }
  auto back = rotation(primals[0].dtype(), /* to_head_major= */ false);
  back.scale = -float{scale};
  auto inputs = primals;
  inputs[0] =
      head_major ? mx::swapaxes(cotangents[0], -3, -2, s) : cotangents[0];
  return make(std::move(back), std::move(inputs), s);
}

Call<OpPtr> NormRope::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  auto batch = inputs;
  for (int i = 0; i < tensors(); ++i) {
    int at = tensor_at(i);
    if (axes[at] < 0 || (weight_of(inputs, i) && axes[at + 1] >= 0)) {
      return {}; // the kernel takes one weight
    }
    batch[at] = with_leading_axis(inputs[at], axes[at], s);
  }
  int at = offset_at();
  if (axes[at] >= 0) {
    auto leading = with_leading_axis(inputs[at], axes[at], s);
    batch[at] = mx::contiguous(leading, /* allow_col_major= */ false, s);
  } else if (inputs[at].size() > 1) {
    return {}; // each is of adjoining sequences
  }
  if (has_freqs && axes[at + 1] >= 0) {
    return {};
  }
  return {shared(*this), std::move(batch)};
}

} // namespace mlx_norms
