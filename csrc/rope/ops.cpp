// Copyright © 2026 mlx_norms contributors

#include "csrc/rope/ops.h"

#include "csrc/common/axes.h"
#include "csrc/common/checks.h"
#include "csrc/norm/checks.h"

namespace mlx_norms {

namespace {

struct Tensor {
  const char* name;
  const array* x;
  const char* weight_name;
  const array* weight;
};

void check_tensor(const char* op, const Tensor& tensor, const Tensor& first) {
  const auto& [name, x, weight_name, weight] = tensor;
  check_dtype(op, name, x->dtype());
  if (x->ndim() != 4) {
    refuse(
        op,
        std::string(name) + " must have 4 axes [B, L, H, D] but has shape " +
            text(x->shape()) + ".");
  }
  const auto& of = *first.x;
  bool fits = x->shape(0) == of.shape(0) && x->shape(1) == of.shape(1) &&
      x->shape(3) == of.shape(3);
  if (!fits) {
    refuse(
        op,
        std::string(name) + " must have " + first.name + "'s shape " +
            text(of.shape()) + " but for its heads and has " +
            text(x->shape()) + ".");
  }
  if (x->dtype() != of.dtype()) {
    refuse(
        op,
        std::string(name) + " must have " + first.name + "'s dtype " +
            text(of.dtype()) + " but is " + text(x->dtype()) + ".");
  }
  if (weight) {
    check_head_weight(op, weight_name, *weight, name, *x);
  }
}

// In int32, contiguous.
array make_offset(
    const char* op,
    const array& x,
    const RopeOptions& options,
    mx::Stream s) {
  if (auto* number = std::get_if<int>(&options.offset)) {
    return array(*number, mx::int32);
  }
  auto offset = std::get<array>(options.offset);
  if (!mx::issubdtype(offset.dtype(), mx::integer)) {
    refuse(
        op, "offset must be an integer but is " + text(offset.dtype()) + ".");
  }
  bool fits = offset.ndim() <= 1 &&
      (offset.size() == 1 || offset.size() == static_cast<size_t>(x.shape(0)));
  if (!fits) {
    refuse(
        op,
        "offset must be a scalar or have shape (1) or " +
            text(mx::Shape{x.shape(0)}) + " but has " + text(offset.shape()) +
            ".");
  }
  if (offset.dtype() != mx::int32) {
    return mx::astype(offset, mx::int32, s); // it is contiguous then
  }
  return offset.size() == 1 ? offset : dense(offset, s);
}

array make_freqs(const char* op, const array& freqs, int dims, mx::Stream s) {
  check_dtype(op, "freqs", freqs.dtype());
  check_freqs(op, freqs, dims);
  return dense(mx::astype(freqs, mx::float32, s), s);
}

Call<NormRope> checked_call(
    const char* op,
    const std::vector<Tensor>& rotated,
    const array* v,
    const RopeOptions& options,
    mx::Stream s) {
  const auto& first = rotated[0];
  for (const auto& tensor : rotated) {
    check_tensor(op, tensor, first);
  }
  if (v) {
    check_tensor(op, {"v", v, nullptr, nullptr}, first);
  }
  const auto& x = *first.x;
  if (options.freqs && options.base) {
    refuse(op, "Only one of base or freqs can have a value.");
  }
  if (!options.freqs && !options.base) {
    refuse(op, "Neither base nor freqs has a value.");
  }
  int dims = options.dims.value_or(x.shape(-1));
  check_dims(op, x, dims);
  NormInputs in{{kX, &x}, {kWeight, first.weight}};
  auto* prefix = rotated.size() > 1 ? "q_" : "";
  auto spec =
      spec_of(op, false, in, options.eps, options.weight_offset, prefix);
  auto rounding = parse_rounding(op, options.rounding, options.weight_offset);

  NormRope rope{
      .rotated = static_cast<int>(rotated.size()),
      .has_v = v != nullptr,
      .has_weight = first.weight != nullptr,
      .has_freqs = options.freqs != nullptr,
      .rope_first = options.rope_first,
      .head_major = options.head_major,
      .traditional = options.traditional,
      .rounding = rounding,
      .dims = options.dims,
      .base = options.base.value_or(1.0f),
      .scale = options.scale,
      .q_scale = rounding == Rounding::Early
          ? rounded_to(options.q_scale, x.dtype())
          : options.q_scale,
      .weight_offset = spec.weight_offset,
      .eps = spec.eps,
      .dtypes = {}};
  Arrays inputs;
  for (const auto& tensor : rotated) {
    inputs.push_back(*tensor.x);
    if (tensor.weight) {
      inputs.push_back(*tensor.weight);
    }
  }
  if (v) {
    inputs.push_back(*v);
  }
  inputs.push_back(make_offset(op, x, options, s));
  if (options.freqs) {
    inputs.push_back(make_freqs(op, *options.freqs, dims, s));
  }
  for (int i = 0; i < rope.tensors(); ++i) {
    rope.dtypes.push_back(x.dtype());
  }
  return {std::move(rope), std::move(inputs)};
}

} // namespace

Call<NormRope> norm_rope_call(
    const array& x,
    const array* weight,
    const RopeOptions& options) {
  return checked_call(
      "norm_rope",
      {{"x", &x, "weight", weight}},
      nullptr,
      options,
      mx::to_stream(options.stream));
}

array norm_rope(
    const array& x,
    const array* weight,
    const RopeOptions& options) {
  auto [op, inputs] = norm_rope_call(x, weight, options);
  return make(
      std::move(op), std::move(inputs), mx::to_stream(options.stream))[0];
}

Arrays qk_norm_rope(
    const array& q,
    const array& k,
    const array* q_weight,
    const array* k_weight,
    const array* v,
    const RopeOptions& options) {
  const char* op = "qk_norm_rope";
  if ((q_weight == nullptr) != (k_weight == nullptr)) {
    refuse(
        op,
        std::string(q_weight ? "k_weight" : "q_weight") +
            " must be given too: q and k are normalized alike.");
  }
  auto s = mx::to_stream(options.stream);
  auto [rope, inputs] = checked_call(
      op,
      {{"q", &q, "q_weight", q_weight}, {"k", &k, "k_weight", k_weight}},
      v,
      options,
      s);
  return make(std::move(rope), std::move(inputs), s);
}

} // namespace mlx_norms
