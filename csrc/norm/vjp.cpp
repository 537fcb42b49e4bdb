// Copyright © 2026 mlx_norms contributors

#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/primitive.h"
#include "csrc/norm/row_groups.h"
#include "csrc/norm/split.h"

namespace mlx_norms {

namespace {

// The gradients in MLX's ops.
Function fallback_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    mx::Stream stream) {
  return [=](const Arrays& inputs) {
    NormVJPInputs in(spec.norm, inputs.data());
    return fallback_norm_vjp(spec, dtypes, in, stream);
  };
}

} // namespace

Arrays NormVJP::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = fallback_vjp(spec_, dtypes_, stream());
  return jvp_of(f, primals, tangents, argnums);
}

Arrays NormVJP::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  auto f = fallback_vjp(spec_, dtypes_, stream());
  return vjp_of(f, primals, cotangents, argnums);
}

std::pair<Arrays, std::vector<int>> NormVJP::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  // The kernel sums a parameter's gradient over all rows, not per example, and
  // accepts one weight, of which a batch may have other groups of rows.
  bool weight_batched =
      spec_.norm.weight && (axes[1] >= 0 || inputs[1].ndim() > 2);
  if (weight_batched || spec_.weight || spec_.bias) {
    auto split = [this](const Arrays& in) {
      NormVJPInputs named(spec_.norm, in.data());
      if (spec_.norm.gate) {
        return fallback_norm_vjp(spec_, dtypes_, named, stream());
      }
      return split_norm_vjp(spec_, dtypes_, named, stream());
    };
    return with_leading_axes(mx::vmap(Function(split), axes)(inputs));
  }
  // All inputs but the weight are rows.
  Arrays rows;
  std::vector<int> row_axes;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    if (!(spec_.norm.weight && i == 1)) {
      rows.push_back(inputs[i]);
      row_axes.push_back(axes[i]);
    }
  }
  auto batch = with_leading_batch(rows, row_axes, stream());
  auto shape = batch[0].shape();
  if (spec_.norm.weight) {
    batch.insert(batch.begin() + 1, inputs[1]);
  }
  return with_leading_axes(
      array::make_arrays(
          std::vector<mx::Shape>(dtypes_.size(), shape),
          dtypes_,
          std::make_shared<NormVJP>(stream(), spec_, dtypes_),
          batch));
}

bool NormVJP::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const NormVJP&>(other);
  return spec_ == o.spec_ && dtypes_ == o.dtypes_ && merging_.into(o.merging_);
}

void NormVJP::check_shapes(const Arrays& inputs) const {
  NormVJPInputs in(spec_.norm, inputs.data());
  check_same_shape(name(), "cotangent", in.cotangent, in.s);
  if (in.sum_cotangent) {
    check_same_shape(name(), "sum's cotangent", *in.sum_cotangent, in.s);
  }
  if (in.gate) {
    check_same_shape(name(), "gate", *in.gate, in.s);
  }
  if (in.weight) {
    check_broadcasts(name(), "weight", *in.weight, in.s);
    if (!row_groups(in.weight->shape(), in.s.shape())) {
      refuse(
          name(),
          "weight has no row for each group of x's rows: its shape is " +
              text(in.weight->shape()) + ", x's " + text(in.s.shape()) + ".");
    }
  }
}

std::vector<mx::Shape> NormVJP::output_shapes(const Arrays& inputs) {
  NormVJPInputs in(spec_.norm, inputs.data());
  std::vector<mx::Shape> shapes;
  if (spec_.input) {
    shapes.push_back(in.s.shape());
  }
  if (spec_.gate) {
    shapes.push_back(in.s.shape());
  }
  if (spec_.weight) {
    shapes.push_back(in.weight->shape());
  }
  if (spec_.bias) {
    shapes.push_back(
        in.weight && in.weight->ndim() > 1 ? in.weight->shape()
                                           : mx::Shape{in.s.shape(-1)});
  }
  return shapes;
}

} // namespace mlx_norms
