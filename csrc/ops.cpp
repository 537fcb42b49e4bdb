// Copyright © 2026 mlx_norms contributors

#include "csrc/ops.h"

#include <cstdio>
#include <sstream>

#include "csrc/compose.h"
#include "csrc/cpu/isa.h"
#include "csrc/norm.h"

namespace mlx_norms {

namespace {

using OptionalArray = std::optional<mx::array>;

std::string text(const std::string& s) {
  return s;
}
std::string text(mx::Dtype dtype) {
  std::ostringstream name;
  name << dtype;
  return name.str();
}
std::string text(float value) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%g", value);
  return digits;
}
std::string text(const mx::Shape& shape) {
  std::string sizes;
  for (auto size : shape) {
    sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  }
  return "(" + sizes + ")";
}

// No number is written to a stream: that crashes where the toolchain gives the
// extension a C++ runtime of its own beside MLX's.
template <typename... Parts>
[[noreturn]] void refuse(const char* op, const Parts&... parts) {
  std::string message = std::string("[") + op + "] ";
  ((message += text(parts)), ...);
  throw std::invalid_argument(message);
}

bool is_supported(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

void check_dtype(const char* op, const char* argument, mx::Dtype dtype) {
  if (!is_supported(dtype)) {
    refuse(
        op,
        argument,
        " must be float32, float16 or bfloat16 but is ",
        dtype,
        ".");
  }
}

void check_rows(const char* op, const char* argument, const mx::array& x) {
  check_dtype(op, argument, x.dtype());
  if (x.ndim() == 0) {
    refuse(op, argument, " must have at least 1 axis but has none.");
  }
}

void check_vector(
    const char* op,
    const char* argument,
    const mx::array& v,
    int row_length) {
  check_dtype(op, argument, v.dtype());
  if (v.shape() != mx::Shape{row_length}) {
    refuse(
        op,
        argument,
        " must have shape ",
        mx::Shape{row_length},
        ", the last axis of x, but has ",
        v.shape(),
        ".");
  }
}

void check_heads(const char* op, const char* argument, const mx::array& x) {
  check_rows(op, argument, x);
  if (x.ndim() < 2) {
    refuse(
        op,
        argument,
        " must have at least 2 axes [..., heads, head_dim] but has shape ",
        x.shape(),
        ".");
  }
}

void check_head_weight(
    const char* op,
    const char* argument,
    const mx::array& weight,
    const char* x_name,
    const mx::array& x) {
  check_dtype(op, argument, weight.dtype());
  mx::Shape shared{x.shape(-1)}, per_head{x.shape(-2), x.shape(-1)};
  if (weight.shape() != shared && weight.shape() != per_head) {
    refuse(
        op,
        argument,
        " must have shape ",
        shared,
        " or ",
        per_head,
        ", the last axes of ",
        x_name,
        ", but has ",
        weight.shape(),
        ".");
  }
}

Rounding parse_rounding(const char* op, const NormOptions& options) {
  if (!options.rounding) {
    // Gemma, whose weight is stored less one, computes in float32 to the end.
    return options.weight_offset == 0 ? Rounding::Early : Rounding::Late;
  }
  if (*options.rounding == "early") {
    return Rounding::Early;
  }
  if (*options.rounding == "late") {
    return Rounding::Late;
  }
  refuse(
      op,
      "rounding must be \"early\" or \"late\" but is \"",
      *options.rounding,
      "\".");
}

NormSpec make_spec(
    const char* op,
    bool centre,
    bool weight,
    bool bias,
    float eps,
    const NormOptions& options) {
  if (!(eps >= 0)) {
    refuse(op, "eps must not be negative but is ", eps, ".");
  }
  if (options.dtype) {
    check_dtype(op, "dtype", *options.dtype);
  }
  if (options.weight_offset != 0 && !weight) {
    refuse(
        op,
        "weight_offset is ",
        options.weight_offset,
        " but there is no weight to add it to.");
  }
  return NormSpec{
      .centre = centre,
      .weight = weight,
      .bias = bias,
      .clamp = options.clamp,
      .rounding = parse_rounding(op, options),
      .weight_offset = options.weight_offset,
      .eps = eps};
}

// The node, or its composition where the stream's device has no kernel.
Arrays build(
    const NormSpec& spec,
    mx::Dtype dtype,
    std::vector<mx::Shape> shapes,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    const NormOptions& options) {
  auto stream = mx::to_stream(options.stream);
  if (stream.device == mx::Device::gpu) {
    Arrays outputs;
    for (size_t i = 0; i < inputs.size(); i += spec.n_inputs()) {
      auto group =
          compose_norm(spec, dtype, NormInputs(spec, &inputs[i]), stream);
      outputs.insert(outputs.end(), group.begin(), group.end());
    }
    return outputs;
  }
  cpu::isa(); // refuses an instruction set that this machine lacks
  return mx::array::make_arrays(
      std::move(shapes),
      dtypes,
      std::make_shared<Norm>(stream, spec, dtype),
      inputs);
}

mx::array norm(
    const char* op,
    bool centre,
    const mx::array& x,
    const OptionalArray& weight,
    const OptionalArray& bias,
    float eps,
    const NormOptions& options) {
  auto spec =
      make_spec(op, centre, weight.has_value(), bias.has_value(), eps, options);
  auto dtype = options.dtype.value_or(x.dtype());
  Arrays inputs{x};
  if (weight) {
    inputs.push_back(*weight);
  }
  if (bias) {
    inputs.push_back(*bias);
  }
  return build(spec, dtype, {x.shape()}, {dtype}, inputs, options)[0];
}

std::pair<mx::array, mx::array> add_norm(
    const char* op,
    bool centre,
    const mx::array& x,
    const mx::array& residual,
    const OptionalArray& weight,
    const OptionalArray& bias,
    float eps,
    const NormOptions& options) {
  check_dtype(op, "residual", residual.dtype());
  if (residual.shape() != x.shape()) {
    refuse(
        op,
        "residual must have x's shape ",
        x.shape(),
        " but has ",
        residual.shape(),
        ".");
  }
  auto spec =
      make_spec(op, centre, weight.has_value(), bias.has_value(), eps, options);
  spec.residual = true;
  auto sum_dtype = mx::result_type(x, residual);
  auto dtype = options.dtype.value_or(sum_dtype);
  Arrays inputs{x, residual};
  if (weight) {
    inputs.push_back(*weight);
  }
  if (bias) {
    inputs.push_back(*bias);
  }
  auto outputs = build(
      spec, dtype, {x.shape(), x.shape()}, {dtype, sum_dtype}, inputs, options);
  return {outputs[0], outputs[1]};
}

void check_affine(
    const char* op,
    const mx::array& x,
    const OptionalArray& weight,
    const OptionalArray& bias) {
  check_rows(op, "x", x);
  if (weight) {
    check_vector(op, "weight", *weight, x.shape(-1));
  }
  if (bias) {
    check_vector(op, "bias", *bias, x.shape(-1));
  }
}

} // namespace

mx::array rms_norm(
    const mx::array& x,
    const OptionalArray& weight,
    float eps,
    const NormOptions& options) {
  check_affine("rms_norm", x, weight, std::nullopt);
  return norm("rms_norm", false, x, weight, std::nullopt, eps, options);
}

mx::array layer_norm(
    const mx::array& x,
    const OptionalArray& weight,
    const OptionalArray& bias,
    float eps,
    const NormOptions& options) {
  check_affine("layer_norm", x, weight, bias);
  return norm("layer_norm", true, x, weight, bias, eps, options);
}

std::pair<mx::array, mx::array> add_rms_norm(
    const mx::array& x,
    const mx::array& residual,
    const OptionalArray& weight,
    float eps,
    const NormOptions& options) {
  check_affine("add_rms_norm", x, weight, std::nullopt);
  return add_norm(
      "add_rms_norm", false, x, residual, weight, std::nullopt, eps, options);
}

std::pair<mx::array, mx::array> add_layer_norm(
    const mx::array& x,
    const mx::array& residual,
    const OptionalArray& weight,
    const OptionalArray& bias,
    float eps,
    const NormOptions& options) {
  check_affine("add_layer_norm", x, weight, bias);
  return add_norm(
      "add_layer_norm", true, x, residual, weight, bias, eps, options);
}

mx::array head_rms_norm(
    const mx::array& x,
    const OptionalArray& weight,
    float eps,
    const NormOptions& options) {
  const char* op = "head_rms_norm";
  check_heads(op, "x", x);
  if (weight) {
    check_head_weight(op, "weight", *weight, "x", x);
  }
  return norm(op, false, x, weight, std::nullopt, eps, options);
}

std::pair<mx::array, mx::array> qk_norm(
    const mx::array& q,
    const mx::array& k,
    const OptionalArray& q_weight,
    const OptionalArray& k_weight,
    float eps,
    const NormOptions& options) {
  const char* op = "qk_norm";
  check_heads(op, "q", q);
  check_heads(op, "k", k);
  if (k.shape(-1) != q.shape(-1)) {
    refuse(
        op,
        "k must have q's head_dim ",
        std::to_string(q.shape(-1)),
        " but has ",
        std::to_string(k.shape(-1)),
        ".");
  }
  if (k.dtype() != q.dtype()) {
    refuse(op, "k must have q's dtype ", q.dtype(), " but is ", k.dtype(), ".");
  }
  if (q_weight.has_value() != k_weight.has_value()) {
    refuse(
        op,
        q_weight ? "k_weight" : "q_weight",
        " must be given too: q and k are normalised alike.");
  }
  if (q_weight) {
    check_head_weight(op, "q_weight", *q_weight, "q", q);
    check_head_weight(op, "k_weight", *k_weight, "k", k);
  }
  auto spec = make_spec(op, false, q_weight.has_value(), false, eps, options);
  auto dtype = options.dtype.value_or(q.dtype());
  Arrays inputs{q};
  if (q_weight) {
    inputs.push_back(*q_weight);
  }
  inputs.push_back(k);
  if (k_weight) {
    inputs.push_back(*k_weight);
  }
  auto outputs = build(
      spec, dtype, {q.shape(), k.shape()}, {dtype, dtype}, inputs, options);
  return {outputs[0], outputs[1]};
}

} // namespace mlx_norms
