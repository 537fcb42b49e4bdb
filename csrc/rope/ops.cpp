// Copyright © 2026 mlx_norms contributors

#include "csrc/rope/ops.h"

#include "csrc/common/axes.h"
#include "csrc/common/checks.h"
#include "csrc/norm/checks.h"

namespace mlx_norms {

namespace {

struct GivenTensor {
  const char* name;
  const array* given;
  const char* weight_name;
  const array* weight;
  array x; // given, as [B, L, H, D]
};

// Whether heads come before tokens.
bool is_head_major(
    const char* op,
    const char* argument,
    const std::string& layout) {
  if (layout != "BLHD" && layout != "BHLD") {
    refuse(
        op,
        std::string(argument) + " must be \"BLHD\" or \"BHLD\" but is \"" +
            layout + "\".");
  }
  return layout == "BHLD";
}

GivenTensor tensor(
    const char* op,
    const std::string& layout,
    const char* name,
    const array* x,
    const char* weight_name,
    const array* weight,
    mx::Stream s) {
  check_dtype(op, name, x->dtype());
  if (x->ndim() != 4) {
    refuse(
        op,
        std::string(name) + " must have 4 axes, of layout \"" + layout +
            "\", but has shape " + text(x->shape()) + ".");
  }
  bool head_major = is_head_major(op, "layout", layout);
  auto rows = head_major ? mx::swapaxes(*x, 1, 2, s) : *x;
  return {name, x, weight_name, weight, std::move(rows)};
}

void check_tensor(
    const char* op,
    const GivenTensor& tensor,
    const GivenTensor& first) {
  auto& [name, given, weight_name, weight, x] = tensor;
  const auto& of = first.x;
  bool fits = x.shape(0) == of.shape(0) && x.shape(1) == of.shape(1) &&
      x.shape(3) == of.shape(3);
  if (!fits) {
    refuse(
        op,
        std::string(name) + " must have " + first.name + "'s shape " +
            text(first.given->shape()) + " but for its heads and has " +
            text(given->shape()) + ".");
  }
  if (x.dtype() != of.dtype()) {
    refuse(
        op,
        std::string(name) + " must have " + first.name + "'s dtype " +
            text(of.dtype()) + " but is " + text(x.dtype()) + ".");
  }
  if (weight) {
    check_head_weight(op, weight_name, *weight, name, x);
  }
}

// Makes an offset in int32, contiguous.
array make_offset(
    const char* op,
    const array& x,
    const RopeArguments& a,
    mx::Stream s) {
  if (std::holds_alternative<bool>(a.offset)) {
    refuse(op, "offset must be an integer but is bool.");
  }
  if (auto* number = std::get_if<int>(&a.offset)) {
    return array(*number, mx::int32);
  }
  auto offset = std::get<array>(a.offset);
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

Call<NormRope>
checked_call(const char* op, const RopeArguments& a, mx::Stream s) {
  auto of = [&](auto... tensor_of) {
    return tensor(op, a.layout, tensor_of..., s);
  };
  std::vector<GivenTensor> tensors;
  if (!a.k) {
    tensors.push_back(of("x", a.q, "weight", a.q_weight));
  } else {
    tensors.push_back(of("q", a.q, "q_weight", a.q_weight));
    tensors.push_back(of("k", a.k, "k_weight", a.k_weight));
  }
  auto rotated = static_cast<int>(tensors.size());
  if (a.v) {
    tensors.push_back(of("v", a.v, "", nullptr));
  }
  const auto& first = tensors[0];
  for (const auto& tensor : tensors) {
    check_tensor(op, tensor, first);
  }
  const auto& x = first.x;
  if (a.freqs && a.base) {
    refuse(op, "Only one of base or freqs can have a value.");
  }
  if (!a.freqs && !a.base) {
    refuse(op, "Neither base nor freqs has a value.");
  }
  int dims = a.dims.value_or(x.shape(-1));
  check_dims(op, x, dims);
  NormInputs in{{kX, &x}, {kWeight, first.weight}};
  auto* prefix = a.k ? "q_" : "";
  auto norm = spec_of(op, false, in, a.eps, a.weight_offset, prefix);
  norm.rounding = parse_rounding(op, a.rounding, a.weight_offset);
  bool early = norm.rounding == Rounding::Early;
  norm.multiplier =
      early ? rounded_to(a.q_multiplier, x.dtype()) : a.q_multiplier;

  NormRope rope;
  rope.dtypes = Dtypes(tensors.size(), x.dtype());
  rope.rotated = rotated;
  rope.has_v = a.v != nullptr;
  rope.has_freqs = a.freqs != nullptr;
  rope.rope_first = a.rope_first;
  rope.head_major = is_head_major(op, "output_layout", a.output_layout);
  rope.traditional = a.traditional;
  rope.dims = a.dims;
  rope.base = a.base.value_or(1.0f);
  rope.scale = a.scale;
  rope.norm = norm;
  Arrays inputs;
  for (const auto& tensor : tensors) {
    inputs.push_back(tensor.x);
    if (tensor.weight) {
      inputs.push_back(*tensor.weight);
    }
  }
  inputs.push_back(make_offset(op, x, a, s));
  if (a.freqs) {
    inputs.push_back(make_freqs(op, *a.freqs, dims, s));
  }
  return {std::move(rope), std::move(inputs)};
}

} // namespace

Call<NormRope> norm_rope_call(const RopeArguments& a) {
  return checked_call("norm_rope", a, mx::to_stream(a.stream));
}

array norm_rope(const RopeArguments& a) {
  auto [op, inputs] = norm_rope_call(a);
  return make(std::move(op), std::move(inputs), mx::to_stream(a.stream))[0];
}

Arrays qk_norm_rope(const RopeArguments& a) {
  const char* op = "qk_norm_rope";
  if (!a.q_weight != !a.k_weight) {
    refuse(
        op,
        std::string(a.q_weight ? "k_weight" : "q_weight") +
            " must be given too: q and k are normalized alike.");
  }
  auto s = mx::to_stream(a.stream);
  auto [rope, inputs] = checked_call(op, a, s);
  return make(std::move(rope), std::move(inputs), s);
}

} // namespace mlx_norms
