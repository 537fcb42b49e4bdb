// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include "csrc/rope/ops.h"

namespace nb = nanobind;

namespace mlx_norms {

namespace {

// Parameters of ropes of one tensor, which norm_rope calls x, or of several.
template <bool kSeveral>
const Parameters<RopeArguments>& rope_parameters() {
  using A = RopeArguments;
  static const Parameters<A> parameters(
      {required<&A::q>(kSeveral ? "q" : "x"),
       required<&A::k>("k"),
       parameter<&A::q_weight>(kSeveral ? "q_weight" : "weight"),
       parameter<&A::k_weight>("k_weight"),
       parameter<&A::eps>("eps"),
       parameter<&A::dims>("dims"),
       parameter<&A::layout>("layout"),
       parameter<&A::traditional>("traditional"),
       parameter<&A::base>("base"),
       parameter<&A::scale>("scale"),
       parameter<&A::offset>("offset"),
       parameter<&A::freqs>("freqs"),
       parameter<&A::v>("v"),
       parameter<&A::q_multiplier>("q_multiplier"),
       parameter<&A::weight_offset>("weight_offset"),
       parameter<&A::rope_first>("rope_first"),
       parameter<&A::output_layout>("output_layout"),
       parameter<&A::rounding>("rounding"),
       parameter<&A::stream>("stream")},
      /* required= */ 1);
  return parameters;
}

} // namespace

void bind_ropes(nb::module_& m) {
  def<&norm_rope>(m, "norm_rope", rope_parameters<false>());
  def<&qk_norm_rope>(m, "qk_norm_rope", rope_parameters<true>());
}

} // namespace mlx_norms
