// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/ops.h"

#include "csrc/common/checks.h"
#include "csrc/group_norm/group_norm.h"

namespace mlx_norms {

namespace {

using OptionalDtype = std::optional<mx::Dtype>;

// {normalized, [mean, rest, variance]}
Arrays normalize(
    const char* op,
    GroupNormSpec spec,
    const array& x,
    const array* weight,
    const array* bias,
    const OptionalDtype& dtype,
    mx::Stream s,
    const Arrays& running = {}) {
  Arrays inputs{x};
  for (auto* parameter : {weight, bias}) {
    if (parameter) {
      check_vector(op, parameter == weight ? "weight" : "bias", *parameter, x);
      inputs.push_back(*parameter);
    }
  }
  if (!(spec.eps >= 0)) {
    refuse(op, "eps must not be negative but is " + text(spec.eps) + ".");
  }
  if (dtype) {
    check_dtype(op, "dtype", *dtype);
  }
  spec.weight = weight;
  spec.bias = bias;
  spec.running = !running.empty();
  inputs.insert(inputs.end(), running.begin(), running.end());
  return make(GroupNorm(spec, dtype.value_or(x.dtype())), std::move(inputs), s);
}

void check_axes(
    const char* op,
    const array& x,
    size_t min_axes,
    const char* what) {
  check_dtype(op, "x", x.dtype());
  if (x.ndim() < min_axes) {
    refuse(
        op,
        "x must have at least " + std::to_string(min_axes) + " axes " + what +
            " but has shape " + text(x.shape()) + ".");
  }
}

// kept * old + momentum * now, in the dtype that old and x promote to.
array updated(
    const array& old,
    const array& now,
    const array& kept,
    const array& momentum,
    mx::Dtype x_dtype,
    mx::Stream s) {
  auto sum = mx::add(
      mx::multiply(mx::astype(old, mx::float32, s), kept, s),
      mx::multiply(now, momentum, s),
      s);
  return mx::astype(sum, mx::promote_types(old.dtype(), x_dtype), s);
}

// Of {mean, rest, variance, old mean, old variance, the unbiased variance over
// the biased one, 1 - momentum, momentum, an array of x's dtype}: the new mean
// and variance.
Arrays updated_statistics(const Arrays& in, mx::Stream s) {
  auto mean = mx::add(in[0], in[1], s);
  auto variance = mx::multiply(in[2], in[5], s);
  auto dtype = in[8].dtype();
  return {
      updated(in[3], mean, in[6], in[7], dtype, s),
      updated(in[4], variance, in[6], in[7], dtype, s)};
}

Arrays updated_on_default_stream(const Arrays& in) {
  return updated_statistics(in, mx::default_stream(mx::default_device()));
}

// A kernel for each on a GPU. On the CPU, MLX's compiled functions ask for a
// compiler, and on CUDA they divide by the number of channels.
Arrays update_statistics(const Arrays& in, mx::Stream s) {
  bool compiled = s.device == mx::Device::gpu && in[3].size() > 0 &&
      s == mx::default_stream(mx::default_device());
  return compiled ? mx::compile(updated_on_default_stream)(in)
                  : updated_statistics(in, s);
}

} // namespace

array group_norm(
    const array& x,
    int num_groups,
    const array* weight,
    const array* bias,
    float eps,
    bool pytorch_compatible,
    const std::optional<std::string>& activation,
    const OptionalDtype& dtype,
    mx::StreamOrDevice stream) {
  const char* op = "group_norm";
  check_axes(op, x, 2, "[batch, ..., channels]");
  if (num_groups < 1 || x.shape(-1) % num_groups != 0) {
    refuse(
        op,
        "num_groups must divide the number of channels, " +
            std::to_string(x.shape(-1)) + ", but is " +
            std::to_string(num_groups) + ".");
  }
  GroupNormSpec spec{.eps = eps};
  spec.groups = num_groups;
  spec.strided = !pytorch_compatible;
  spec.activation = parse_activation(op, activation, {"silu", "gelu"});
  return normalize(op, spec, x, weight, bias, dtype, mx::to_stream(stream))[0];
}

array instance_norm(
    const array& x,
    const array* weight,
    const array* bias,
    float eps,
    const OptionalDtype& dtype,
    mx::StreamOrDevice stream) {
  const char* op = "instance_norm";
  check_axes(op, x, 3, "[batch, ..., channels]");
  GroupNormSpec spec{.eps = eps};
  return normalize(op, spec, x, weight, bias, dtype, mx::to_stream(stream))[0];
}

std::variant<array, std::tuple<array, array, array>> batch_norm(
    const array& x,
    const array* weight,
    const array* bias,
    const array* mean,
    const array* var,
    float eps,
    bool training,
    float momentum,
    const OptionalDtype& dtype,
    mx::StreamOrDevice stream) {
  const char* op = "batch_norm";
  auto s = mx::to_stream(stream);
  check_axes(op, x, 2, "[batch, ..., channels]");
  if (!mean != !var) {
    refuse(
        op,
        std::string(mean ? "var" : "mean") + " must not be None with a " +
            (mean ? "mean" : "var") + ".");
  }
  if (mean) {
    check_vector(op, "mean", *mean, x);
    check_vector(op, "var", *var, x);
  }
  std::vector<int> axes;
  int64_t values = 1; // per channel
  for (int i = 0; i + 1 < static_cast<int>(x.ndim()); ++i) {
    axes.push_back(i);
    values *= x.shape(i);
  }
  if (training && values == 1) {
    refuse(
        op,
        "x must have more than one value per channel in training but has "
        "shape " +
            text(x.shape()) + ".");
  }
  GroupNormSpec spec{.sample_axes = 0, .eps = eps};
  Arrays running;
  if (mean && !training) {
    running = {*mean, *var};
  }
  auto outputs = normalize(op, spec, x, weight, bias, dtype, s, running);
  if (!mean || !training) {
    return outputs[0];
  }
  auto unbiased = array(static_cast<float>(values) / (values - 1));
  // Under shapeless compile the number of values may change.
  if (x.is_tracer()) {
    auto n = mx::number_of_elements(x, axes, false, mx::float32, s);
    unbiased = mx::divide(n, mx::subtract(n, array(1.0f), s), s);
  }
  auto statistics = update_statistics(
      {outputs[1],
       outputs[2],
       outputs[3],
       *mean,
       *var,
       unbiased,
       array(1.0f - momentum),
       array(momentum),
       array(0.0f, x.dtype())},
      s);
  return std::tuple{outputs[0], statistics[0], statistics[1]};
}

} // namespace mlx_norms
