// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/layer_norm.h"

#include <algorithm>

#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/ops.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "layer_norm";

// Makes a node. The kernels read contiguous rows.
array rung_node(
    const Rung& rung,
    const NormSpec& spec,
    const Arrays& inputs,
    mx::Stream stream) {
  Arrays dense;
  for (const auto& a : inputs) {
    dense.push_back(mx::contiguous(a, /* allow_col_major= */ false, stream));
  }
  auto shape = inputs[0].shape();
  auto dtype = inputs[0].dtype();
  return array(
      std::move(shape),
      dtype,
      std::make_shared<LayerNormRung>(stream, rung, spec),
      std::move(dense));
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

Arrays LayerNormRung::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  Norm formula(spec_, primals[0].dtype(), primals);
  return formula.jvp(primals, tangents, argnums, stream());
}

Arrays LayerNormRung::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  Norm formula(spec_, primals[0].dtype(), primals);
  return formula.vjp(primals, cotangents, argnums, outputs, stream());
}

std::pair<Arrays, std::vector<int>> LayerNormRung::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  if (std::any_of(axes.begin() + 1, axes.end(), [](int a) { return a >= 0; })) {
    // The kernel accepts one weight, so each example's is applied after it.
    auto split = [this](const Arrays& in) -> Arrays {
      auto bare = spec_;
      bare.operands = {kX};
      auto x = mx::astype(in[0], mx::float32, stream()); // every rung takes it
      auto n = rung_node(rung_, bare, {x}, stream());
      NormInputs of(spec_.operands, in.data());
      auto y = apply_parameters(spec_, n, of, stream());
      return {mx::astype(y, in[0].dtype(), stream())};
    };
    return with_leading_axes(mx::vmap(Function(split), axes)(inputs));
  }
  auto batch = inputs;
  batch[0] = mx::moveaxis(inputs[0], axes[0], 0, stream());
  return with_leading_axes({rung_node(rung_, spec_, batch, stream())});
}

bool LayerNormRung::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const LayerNormRung&>(other);
  return &rung_ == &o.rung_ && spec_ == o.spec_;
}

std::vector<mx::Shape> LayerNormRung::output_shapes(const Arrays& inputs) {
  // Shapeless compile asks again at every call, whose shapes may not fit.
  NormInputs in(spec_.operands, inputs.data());
  for (auto operand : spec_.operands.without({kX})) {
    auto* argument = kOperandTraits[operand].name;
    check_vector(kOp, argument, *in[operand], in.x());
  }
  return {in.x().shape()};
}

mx::array layer_norm_by_rung(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    const std::string& name,
    mx::StreamOrDevice s) {
  const auto& rung = find_rung(kOp, layer_norm_rungs(), name);
  if (name == "ours") {
    return layer_norm(x, weight, bias, eps, 0, {}, nullptr, nullptr, {}, -1, s);
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
  return rung_node(rung, spec, inputs, stream);
}

} // namespace mlx_norms
