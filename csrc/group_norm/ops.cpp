// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/ops.h"

#include "csrc/common/checks.h"
#include "csrc/group_norm/nodes.h"

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
  return make_group_norm(spec, dtype.value_or(x.dtype()), std::move(inputs), s);
}

void check_axes(
    const char* op,
    const array& x,
    size_t least,
    const char* what) {
  check_dtype(op, "x", x.dtype());
  if (x.ndim() < least) {
    refuse(
        op,
        "x must have at least " + std::to_string(least) + " axes " + what +
            " but has shape " + text(x.shape()) + ".");
  }
}

Activation parse_activation(
    const char* op,
    const std::optional<std::string>& name) {
  if (!name) {
    return Activation::None;
  }
  if (*name != "silu" && *name != "gelu") {
    refuse(
        op,
        "activation must be \"silu\" or \"gelu\" but is \"" + *name + "\".");
  }
  return *name == "silu" ? Activation::Silu : Activation::Gelu;
}

// (1 - momentum) * old + momentum * now, in the dtype that old and x promote
// to.
array updated(
    const array& old,
    const array& now,
    float momentum,
    const array& x,
    mx::Stream s) {
  auto kept =
      mx::multiply(mx::astype(old, mx::float32, s), array(1.0f - momentum), s);
  auto sum = mx::add(kept, mx::multiply(now, array(momentum), s), s);
  return mx::astype(sum, mx::result_type(old, x), s);
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
  spec.activation = parse_activation(op, activation);
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
  bool one = true;
  for (int i = 0; i + 1 < static_cast<int>(x.ndim()); ++i) {
    axes.push_back(i);
    one = one && x.shape(i) == 1;
  }
  if (training && one) {
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
  auto now = mx::add(outputs[1], outputs[2], s);
  // The number of values is not written into the graph: under shapeless
  // compile it may change.
  auto n = mx::number_of_elements(x, axes, false, mx::float32, s);
  auto unbiased = mx::divide(n, mx::subtract(n, array(1.0f), s), s);
  auto spread = mx::multiply(outputs[3], unbiased, s);
  return std::tuple{
      outputs[0],
      updated(*mean, now, momentum, x, s),
      updated(*var, spread, momentum, x, s)};
}

} // namespace mlx_norms
