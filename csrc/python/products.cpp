// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include "csrc/linear/ops.h"
#include "csrc/matmul/ops.h"

namespace nb = nanobind;

namespace mlx_norms {

void bind_products(nb::module_& m) {
  using A = NormLinearArguments;
  static const Parameters<A> parameters(
      {required<&A::x>("x"),
       parameter<&A::norm_weight>("norm_weight"),
       parameter<&A::norm_bias>("norm_bias"),
       parameter<&A::weights>("weights"),
       parameter<&A::eps>("eps"),
       parameter<&A::biases>("biases"),
       parameter<&A::residual>("residual"),
       parameter<&A::gated>("gated"),
       parameter<&A::weight_offset>("weight_offset"),
       parameter<&A::stream>("stream")},
      /* required= */ 1);
  def<&rms_norm_linear>(m, "rms_norm_linear", parameters);
  def<&layer_norm_linear>(m, "layer_norm_linear", parameters);
  using Q = QuantizedMatmulArguments;
  static const Parameters<Q> quantized(
      {required<&Q::x>("x"),
       required<&Q::w>("w"),
       required<&Q::scales>("scales"),
       parameter<&Q::biases>("biases"),
       parameter<&Q::transpose>("transpose"),
       parameter<&Q::group_size>("group_size"),
       parameter<&Q::bits>("bits"),
       parameter<&Q::mode>("mode"),
       parameter<&Q::residual>("residual"),
       parameter<&Q::stream>("stream")},
      /* required= */ 3);
  def<&quantized_matmul>(m, "quantized_matmul", quantized);
  using M = MatmulArguments;
  static const Parameters<M> dense(
      {required<&M::a>("a"),
       required<&M::b>("b"),
       parameter<&M::kernel>("kernel"),
       parameter<&M::stream>("stream")},
      /* required= */ 2);
  def<&matmul>(m, "matmul", dense);
}

} // namespace mlx_norms
