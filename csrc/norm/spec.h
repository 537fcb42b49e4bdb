// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/activation.h"
#include "csrc/common/types.h"
#include "mlx/mlx.h"

namespace mlx_norms {

// When the normalized value is rounded to the output dtype: before the weight
// is applied (Early), or only at the end (Late).
enum class Rounding { Early, Late };

// The options of a norm, by which kernels are specialized.
struct NormSpec {
  bool center = false;     // subtract the mean: LayerNorm, else RMSNorm
  bool l2 = false;         // the sum of squares instead of their mean
  bool eps_bounds = false; // of l2's root, instead of being added under it
  bool residual = false;   // normalize x + residual and return the sum as well
  bool weight = false;
  bool bias = false;
  bool scale = false;  // the result times 1 + scale
  bool shift = false;  // and plus shift
  bool factor = false; // residual + factor * x, with an array
  float number = 1.0f; // or with a number, in x's dtype
  // (residual + x) * factor, an array of one element, rounded at both steps.
  bool factor_of_sum = false;
  bool gate = false;                        // the result times its activation
  bool gate_first = false;                  // or x times it is normalized
  Activation activation = Activation::None; // of the gate, else of the result
  bool identity = false; // not normalized: gradients of products with a weight
  bool clamp = false;    // a float16 sum saturates instead of reaching inf
  Rounding rounding = Rounding::Early;
  float weight_offset = 0.0f;
  float eps = 1e-5f;

  bool operator==(const NormSpec&) const = default;

  // Whether it is one of RMSNorm and LayerNorm with no more than the options
  // that mx.fast, a sum and a float16 clamp have.
  bool is_basic() const {
    return !l2 && !is_modulated() && !is_factored() && !is_gated();
  }
  bool is_modulated() const {
    return scale || shift;
  }
  bool is_factored() const {
    return factor || number != 1.0f;
  }
  bool is_gated() const {
    return gate || activation != Activation::None;
  }
  bool gates_result() const {
    return is_gated() && !gate_first;
  }
  // Of one normalized tensor: x, [residual], [weight], [bias], [scale],
  // [shift], [factor], [gate].
  int n_inputs() const {
    return 1 + residual + weight + bias + scale + shift + factor + gate;
  }
  // Of one normalized tensor: normalized, [sum].
  int n_outputs() const {
    return 1 + residual;
  }
};

// The gradients that NormVJP computes. Its inputs are s (x, or the rounded x +
// residual), [weight], the cotangent of the normalized output, [the cotangent
// of the sum] and [the gate], which has s's shape. A weight may broadcast to s:
// the gradients of weight and bias then have its shape.
struct NormVJPSpec {
  NormSpec norm;
  // Which gradients are wanted, in output order.
  bool input = false; // of x, and of residual: they are the same
  bool gate = false;
  bool weight = false;
  bool bias = false;

  bool operator==(const NormVJPSpec&) const = default;
};

// The indices of one normalized tensor's inputs, which start at `first`; -1:
// absent.
struct NormPositions {
  int x, residual, weight, bias, scale, shift, factor, gate;

  NormPositions(const NormSpec& spec, int first)
      : x(first++),
        residual(spec.residual ? first++ : -1),
        weight(spec.weight ? first++ : -1),
        bias(spec.bias ? first++ : -1),
        scale(spec.scale ? first++ : -1),
        shift(spec.shift ? first++ : -1),
        factor(spec.factor ? first++ : -1),
        gate(spec.gate ? first++ : -1) {}
};

// One of each input of a normalized tensor.
struct NormFlags {
  bool x, weight, bias, scale, shift; // x stands for residual, too
};

// The inputs of one normalized tensor, by name.
struct NormInputs {
  const mx::array& x;
  const mx::array* residual;
  const mx::array* weight;
  const mx::array* bias;
  const mx::array* scale;
  const mx::array* shift;
  const mx::array* factor;
  const mx::array* gate;

  NormInputs(
      const mx::array& x,
      const mx::array* residual,
      const mx::array* weight,
      const mx::array* bias,
      const mx::array* scale = nullptr,
      const mx::array* shift = nullptr,
      const mx::array* factor = nullptr,
      const mx::array* gate = nullptr)
      : x(x),
        residual(residual),
        weight(weight),
        bias(bias),
        scale(scale),
        shift(shift),
        factor(factor),
        gate(gate) {}
  NormInputs(const NormSpec& spec, const mx::array* first)
      : NormInputs(NormPositions(spec, 0), first) {}

  // In the order of NormPositions.
  void append_to(Arrays& inputs) const {
    inputs.push_back(x);
    for (auto* a : {residual, weight, bias, scale, shift, factor, gate}) {
      if (a) {
        inputs.push_back(*a);
      }
    }
  }

 private:
  NormInputs(NormPositions at, const mx::array* first)
      : NormInputs(
            first[at.x],
            at.residual < 0 ? nullptr : first + at.residual,
            at.weight < 0 ? nullptr : first + at.weight,
            at.bias < 0 ? nullptr : first + at.bias,
            at.scale < 0 ? nullptr : first + at.scale,
            at.shift < 0 ? nullptr : first + at.shift,
            at.factor < 0 ? nullptr : first + at.factor,
            at.gate < 0 ? nullptr : first + at.gate) {}
};

// The inputs of NormVJP, by name.
struct NormVJPInputs {
  const mx::array& s;
  const mx::array* weight;
  const mx::array& cotangent;
  const mx::array* sum_cotangent;
  const mx::array* gate;

  NormVJPInputs(
      const mx::array& s,
      const mx::array* weight,
      const mx::array& cotangent,
      const mx::array* sum_cotangent = nullptr,
      const mx::array* gate = nullptr)
      : s(s),
        weight(weight),
        cotangent(cotangent),
        sum_cotangent(sum_cotangent),
        gate(gate) {}
  NormVJPInputs(const NormSpec& spec, const mx::array* first)
      : s(*first++),
        weight(spec.weight ? first++ : nullptr),
        cotangent(*first++),
        sum_cotangent(spec.residual ? first++ : nullptr),
        gate(spec.gate ? first++ : nullptr) {}

  Arrays arrays() const {
    Arrays all;
    for (auto* a : {&s, weight, &cotangent, sum_cotangent, gate}) {
      if (a) {
        all.push_back(*a);
      }
    }
    return all;
  }
};

} // namespace mlx_norms
