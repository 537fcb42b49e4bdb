// Copyright © 2026 mlx_norms contributors
//
// The ops for mlx_norms/ops: each is a C++ function and the names of its
// arguments.

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include <nanobind/stl/pair.h>

#include "csrc/group_norm/ops.h"
#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"
#include "csrc/linear/ops.h"
#include "csrc/matmul/ops.h"
#include "csrc/norm/ops.h"
#include "csrc/rope/ops.h"

namespace nb = nanobind;

namespace mlx_norms {

namespace {

void bind_norms(nb::module_& m) {
  using A = NormArguments;
  static const Parameters<A> parameters{
      required<&A::x>("x"),
      required<&A::residual>("residual"),
      parameter<&A::post_weight>("post_weight"),
      parameter<&A::weight>("weight"),
      parameter<&A::bias>("bias"),
      parameter<&A::eps>("eps"),
      parameter<&A::eps_inside>("eps_inside"),
      parameter<&A::weight_offset>("weight_offset"),
      parameter<&A::clamp>("clamp"),
      parameter<&A::rounding>("rounding"),
      parameter<&A::residual2>("residual2"),
      parameter<&A::factor>("factor"),
      parameter<&A::scale>("scale"),
      parameter<&A::shift>("shift"),
      parameter<&A::gate>("gate"),
      parameter<&A::activation>("activation"),
      parameter<&A::norm_before_gate>("norm_before_gate"),
      parameter<&A::num_groups>("num_groups"),
      parameter<&A::dtype>("dtype"),
      parameter<&A::group>("group"),
      parameter<&A::axis>("axis"),
      parameter<&A::stream>("stream")};
  def<&rms_norm>(m, "rms_norm", parameters);
  def<&layer_norm>(m, "layer_norm", parameters);
  def<&l2_norm>(m, "l2_norm", parameters);
  def<&add_rms_norm>(m, "add_rms_norm", parameters);
  def<&add_layer_norm>(m, "add_layer_norm", parameters);
  def<&norm_add_norm>(m, "norm_add_norm", parameters);
}

void bind_several_norms(nb::module_& m) {
  using A = NormsArguments;
  static const Parameters<A> parameters{
      parameter<&A::xs>("xs"),
      parameter<&A::weights>("weights"),
      parameter<&A::multipliers>("multipliers"),
      parameter<&A::eps>("eps"),
      parameter<&A::eps_inside>("eps_inside"),
      parameter<&A::weight_offset>("weight_offset"),
      parameter<&A::rounding>("rounding"),
      parameter<&A::dtype>("dtype"),
      parameter<&A::stream>("stream")};
  def<&rms_norms>(m, "rms_norms", parameters);
  def<&l2_norms>(m, "l2_norms", parameters);
}

void bind_group_norms(nb::module_& m) {
  using A = GroupNormArguments;
  static const Parameters<A> parameters{
      required<&A::x>("x"),
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
      parameter<&A::stream>("stream")};
  def<&group_norm>(m, "group_norm", parameters);
  def<&instance_norm>(m, "instance_norm", parameters);
  def<&batch_norm>(m, "batch_norm", parameters);
}

// Of one tensor, which norm_rope calls x.
template <bool kSeveral>
const Parameters<RopeArguments>& rope_parameters() {
  using A = RopeArguments;
  static const Parameters<A> parameters{
      required<&A::q>(kSeveral ? "q" : "x"),
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
      parameter<&A::q_scale>("q_scale"),
      parameter<&A::weight_offset>("weight_offset"),
      parameter<&A::rope_first>("rope_first"),
      parameter<&A::output_layout>("output_layout"),
      parameter<&A::rounding>("rounding"),
      parameter<&A::stream>("stream")};
  return parameters;
}

void bind_ropes(nb::module_& m) {
  def<&norm_rope>(m, "norm_rope", rope_parameters<false>());
  def<&qk_norm_rope>(m, "qk_norm_rope", rope_parameters<true>());
}

void bind_norms_with_products(nb::module_& m) {
  using A = NormLinearArguments;
  static const Parameters<A> parameters{
      required<&A::x>("x"),
      parameter<&A::norm_weight>("norm_weight"),
      parameter<&A::norm_bias>("norm_bias"),
      parameter<&A::weights>("weights"),
      parameter<&A::eps>("eps"),
      parameter<&A::biases>("biases"),
      parameter<&A::residual>("residual"),
      parameter<&A::gated>("gated"),
      parameter<&A::weight_offset>("weight_offset"),
      parameter<&A::stream>("stream")};
  def<&rms_norm_linear>(m, "rms_norm_linear", parameters);
  def<&layer_norm_linear>(m, "layer_norm_linear", parameters);
}

void bind_products(nb::module_& m) {
  using Q = QuantizedMatmulArguments;
  static const Parameters<Q> quantized{
      required<&Q::x>("x"),
      required<&Q::w>("w"),
      required<&Q::scales>("scales"),
      parameter<&Q::biases>("biases"),
      parameter<&Q::transpose>("transpose"),
      parameter<&Q::group_size>("group_size"),
      parameter<&Q::bits>("bits"),
      parameter<&Q::mode>("mode"),
      parameter<&Q::residual>("residual"),
      parameter<&Q::stream>("stream")};
  def<&quantized_matmul>(m, "quantized_matmul", quantized);
  using M = MatmulArguments;
  static const Parameters<M> dense{
      required<&M::a>("a"),
      required<&M::b>("b"),
      parameter<&M::kernel>("kernel"),
      parameter<&M::stream>("stream")};
  def<&matmul>(m, "matmul", dense);
}

void bind_rungs(nb::module_& m) {
  using N = LayerNormByRung;
  static const Parameters<N> of_norm{
      required<&N::x>("x"),
      parameter<&N::weight>("weight"),
      parameter<&N::bias>("bias"),
      parameter<&N::eps>("eps"),
      parameter<&N::rung>("rung"),
      parameter<&N::stream>("stream")};
  def<&layer_norm_by_rung>(m, "layer_norm_by_rung", of_norm);
  using P = SgemmByRung;
  static const Parameters<P> of_product{
      required<&P::a>("a"),
      required<&P::b>("b"),
      parameter<&P::rung>("rung"),
      parameter<&P::stream>("stream")};
  def<&sgemm_by_rung>(m, "sgemm_by_rung", of_product);
}

} // namespace

void bind_ops(nb::module_& m) {
  bind_norms(m);
  bind_several_norms(m);
  bind_group_norms(m);
  bind_ropes(m);
  bind_norms_with_products(m);
  bind_products(m);
  bind_rungs(m);
}

} // namespace mlx_norms
