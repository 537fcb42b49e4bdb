// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include "csrc/norm/groups/ops.h"

namespace nb = nanobind;

namespace mlx_norms {

void bind_group_norms(nb::module_& m) {
  using A = GroupNormArguments;
  static const Parameters<A> parameters(
      {required<&A::x>("x"),
       parameter<&A::num_groups>("num_groups"),
       parameter<&A::weight>("weight"),
       parameter<&A::bias>("bias"),
       parameter<&A::eps>("eps"),
       parameter<&A::pytorch_compatible>("pytorch_compatible"),
       parameter<&A::activation>("activation"),
       parameter<&A::mean>("mean"),
       parameter<&A::var>("var"),
       parameter<&A::training>("training"),
       parameter<&A::momentum>("momentum"),
       parameter<&A::dtype>("dtype"),
       parameter<&A::stream>("stream")},
      /* required= */ 1);
  def<&group_norm>(m, "group_norm", parameters);
  def<&instance_norm>(m, "instance_norm", parameters);
  def<&batch_norm>(m, "batch_norm", parameters);
}

} // namespace mlx_norms
