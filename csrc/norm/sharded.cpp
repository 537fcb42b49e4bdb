// Copyright © 2026 mlx_norms contributors
//
// Norms of rows whose last axis is split over the members of a group: MLX's ops
// and one all-reduce of a scalar per row.

#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"

namespace mlx_norms {

using mx::distributed::Group;

namespace {

// The sum of a over all members, with derivatives. Every member's result
// depends on the a of each, so cotangents are summed as well; MLX's all_sum
// returns each member its own. No stream is given: a GPU's may not have the op,
// and the group's own stream keeps all its communication in order.
array sum_over_group(const array& a, const Group& group) {
  auto sum = mx::custom_function(
      [group](const Arrays& in) -> Arrays {
        return {mx::distributed::all_sum(in[0], group)};
      },
      /* fun_vjp= */
      [group](const Arrays&, const Arrays& cotangents, const Arrays&)
          -> Arrays { return {sum_over_group(cotangents[0], group)}; },
      /* fun_jvp= */
      [group](const Arrays&, const Arrays& tangents, const std::vector<int>&)
          -> Arrays { return {sum_over_group(tangents[0], group)}; },
      /* fun_vmap= */
      [group](const Arrays& in, const std::vector<int>& axes)
          -> std::pair<Arrays, std::vector<int>> {
        return {{sum_over_group(in[0], group)}, axes};
      });
  return sum({a})[0];
}

// a rounded to dtype, in its own dtype. The derivative ignores the rounding, as
// in the kernels.
array rounded(const array& a, mx::Dtype dtype, mx::Stream s) {
  auto r = mx::astype(mx::astype(a, dtype, s), a.dtype(), s);
  return mx::add(a, mx::stop_gradient(mx::subtract(r, a, s), s), s);
}

} // namespace

array sharded_rms_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    const Group& group,
    mx::Stream s) {
  auto x = mx::astype(in.x(), mx::float32, s);
  auto squares = sum_over(mx::square(x, s), -1, s);
  auto length = array(static_cast<float>(in.x().shape(-1)) * group.size());
  auto variance = mx::divide(sum_over_group(squares, group), length, s);
  auto root = mx::sqrt(mx::add(variance, array(spec.eps), s), s);
  // Not rsqrt, whose derivative has a cube that leaves float32's range.
  auto y = mx::multiply(x, mx::divide(array(1.0f), root, s), s);
  if (spec.rounding == Rounding::Early && dtype != mx::float32) {
    y = rounded(y, dtype, s);
  }
  return mx::astype(apply_parameters(spec, y, in, s), dtype, s);
}

} // namespace mlx_norms
