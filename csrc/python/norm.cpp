// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include <nanobind/stl/pair.h>

#include "csrc/norm/ops.h"

namespace nb = nanobind;

namespace mlx_norms {

namespace {

// An array of the op's table.
template <Operand kOperand>
constexpr Parameter<NormArguments> operand() {
  constexpr bool kRequired = kOperand == kX || kOperand == kResidual;
  return {
      kOperandTraits[kOperand].name,
      kRequired ? "mx.array" : kWanted<const array*>,
      [](PyObject* given, NormArguments& a) {
        return read(given, a.in[kOperand]) && (a.in[kOperand] || !kRequired);
      }};
}

// The table's operands up to the bias come first, in its order.
template <size_t... kOperands>
const Parameters<NormArguments>& parameters_of_norms(
    std::index_sequence<kOperands...>) {
  using A = NormArguments;
  static const Parameters<A> parameters(
      {operand<static_cast<Operand>(kOperands)>()...,
       parameter<&A::eps>("eps"),
       parameter<&A::eps_inside>("eps_inside"),
       parameter<&A::weight_offset>("weight_offset"),
       parameter<&A::clamp>("clamp"),
       parameter<&A::input_weight>("input_weight"),
       parameter<&A::rounding>("rounding"),
       parameter<&A::factor>("factor"),
       parameter<&A::alpha>("alpha"),
       parameter<&A::scale>("scale"),
       parameter<&A::shift>("shift"),
       operand<kGate>(),
       parameter<&A::activation>("activation"),
       parameter<&A::norm_before_gate>("norm_before_gate"),
       parameter<&A::num_groups>("num_groups"),
       parameter<&A::dtype>("dtype"),
       parameter<&A::group>("group"),
       parameter<&A::axis>("axis"),
       parameter<&A::stream>("stream")},
      /* required= */ 1);
  return parameters;
}

} // namespace

void bind_norms(nb::module_& m) {
  const auto& parameters =
      parameters_of_norms(std::make_index_sequence<kBias + 1>());
  def<&rms_norm>(m, "rms_norm", parameters);
  def<&layer_norm>(m, "layer_norm", parameters);
  def<&l2_norm>(m, "l2_norm", parameters);
  def<&add_rms_norm>(m, "add_rms_norm", parameters);
  def<&add_layer_norm>(m, "add_layer_norm", parameters);
  def<&norm_add_norm>(m, "norm_add_norm", parameters);
  using S = NormsArguments;
  static const Parameters<S> several(
      {parameter<&S::xs>("xs"),
       parameter<&S::weights>("weights"),
       parameter<&S::multipliers>("multipliers"),
       parameter<&S::eps>("eps"),
       parameter<&S::eps_inside>("eps_inside"),
       parameter<&S::weight_offset>("weight_offset"),
       parameter<&S::rounding>("rounding"),
       parameter<&S::dtype>("dtype"),
       parameter<&S::stream>("stream")},
      /* required= */ 1);
  def<&rms_norms>(m, "rms_norms", several);
  def<&l2_norms>(m, "l2_norms", several);
}

} // namespace mlx_norms
