// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/layer_norm.h"

#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/ops.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "layer_norm";

// The kernels read contiguous rows.
array normalize_by(LayerNormRung op, const Arrays& inputs, mx::Stream s) {
  Arrays dense;
  for (const auto& a : inputs) {
    dense.push_back(mx::contiguous(a, /* allow_col_major= */ false, s));
  }
  return node(std::move(op), std::move(dense), s)[0];
}

[[noreturn]] void refuse_for(const Rung& rung, const std::string& message) {
  refuse(kOp, "rung \"" + std::string(rung.name) + "\" " + message);
}

void check_dtype(const Rung& rung, const char* argument, const array& a) {
  if (!rung.takes(a.dtype())) {
    refuse_for(
        rung,
        "takes " + text(rung.dtypes) + " but " + argument + " is " +
            text(a.dtype()) + ".");
  }
}

} // namespace

// Its shapes may not fit.
mx::Shape LayerNormRung::shape(const Arrays& inputs, size_t) const {
  check(inputs);
  return inputs[0].shape();
}

void LayerNormRung::check(const Arrays& inputs) const {
  NormInputs in(spec.operands, inputs.data());
  for (auto operand : spec.operands.without({kX})) {
    auto* argument = kOperandTraits[operand].name;
    check_vector(kOp, argument, *in[operand], in.x());
  }
}

Arrays LayerNormRung::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums,
    mx::Stream s) const {
  return Norm(spec, dtypes[0], primals).jvp(primals, tangents, argnums, s);
}

Arrays LayerNormRung::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs,
    mx::Stream s) const {
  Norm formula(spec, dtypes[0], primals);
  return formula.vjp(primals, cotangents, argnums, outputs, s);
}

Arrays LayerNormRung::mapped(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (any_batched(axes, 1, axes.size())) {
    // The kernel accepts one weight, so each example's is applied after it.
    auto split = [&](const Arrays& in) -> Arrays {
      LayerNormRung bare(rung, spec.bare(), mx::float32); // every rung takes it
      auto n = normalize_by(bare, {mx::astype(in[0], mx::float32, s)}, s);
      NormInputs of(spec.operands, in.data());
      return {mx::astype(apply_parameters(spec, n, of, s), dtypes[0], s)};
    };
    return mx::vmap(Function(split), axes)(inputs);
  }
  auto batch = inputs;
  batch[0] = mx::moveaxis(inputs[0], axes[0], 0, s);
  return {normalize_by(*this, batch, s)};
}

array layer_norm_by_rung(const LayerNormByRung& arguments) {
  const auto& [given, weight, bias, eps, name, s] = arguments;
  const auto& x = *given;
  const auto& rung = find_rung(kOp, layer_norm_rungs(), name);
  if (name == "ours") {
    return layer_norm(
        {.in = {{kX, &x}, {kWeight, weight}, {kBias, bias}},
         .eps = eps,
         .stream = s});
  }
  if (!(eps >= 0)) {
    refuse(kOp, "eps must not be negative but is " + text(eps) + ".");
  }
  check_rows(kOp, "x", x);
  check_dtype(rung, "x", x);
  Arrays inputs{x};
  auto add = [&](const char* argument, const mx::array* a) {
    if (a) {
      check_vector(kOp, argument, *a, x);
      check_dtype(rung, argument, *a);
      if (a->dtype() != x.dtype()) {
        refuse_for(
            rung,
            "takes arrays of one dtype but " + std::string(argument) + " is " +
                text(a->dtype()) + " and x is " + text(x.dtype()) + ".");
      }
      inputs.push_back(*a);
    }
  };
  add("weight", weight);
  add("bias", bias);
  auto stream = mx::to_stream(s);
  require_gpu_kernels(kOp, "rung \"" + name + "\"", stream);
  NormSpec spec{.center = true, .rounding = Rounding::Late, .eps = eps};
  spec.operands.set(kWeight, weight);
  spec.operands.set(kBias, bias);
  return normalize_by({&rung, spec, x.dtype()}, inputs, stream);
}

} // namespace mlx_norms
