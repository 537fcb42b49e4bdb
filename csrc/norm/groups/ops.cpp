// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/groups/ops.h"

#include "csrc/common/checks.h"
#include "csrc/norm/checks.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

namespace {

// {normalized, [mean, rest, variance]}
Arrays normalize(
    const char* op,
    const NormSpec& view,
    const GroupNormArguments& a,
    bool running = false) {
  const auto& x = *a.x;
  NormInputs in{{kX, &x}, {kWeight, a.weight}, {kBias, a.bias}};
  for (auto operand : in.present().without({kX})) {
    check_vector(op, kOperandTraits[operand].name, *in[operand], x);
  }
  if (running) {
    in[kMean] = a.mean;
    in[kVariance] = a.var;
  }
  if (a.dtype) {
    check_dtype(op, "dtype", *a.dtype);
  }
  auto spec =
      spec_of(op, /* center= */ true, in, a.eps, /* weight_offset= */ 0.0f);
  spec.grouped = true;
  spec.strided = view.strided;
  spec.groups = view.groups;
  spec.sample_axes = view.sample_axes;
  spec.activation = parse_activation(op, a.activation, {"silu", "gelu"});
  auto dtype = a.dtype.value_or(x.dtype());
  return make_norm(spec, dtype, in.arrays(), mx::to_stream(a.stream));
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

// Takes {mean, rest, variance, old mean, old variance, the unbiased variance
// over the biased one, 1 - momentum, momentum, an array of x's dtype} and
// returns the new mean and variance.
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

array group_norm(const GroupNormArguments& a) {
  const char* op = "group_norm";
  check_axes(op, *a.x, 2, "[batch, ..., channels]");
  int channels = a.x->shape(-1);
  if (a.num_groups < 1 || channels % a.num_groups != 0) {
    refuse(
        op,
        "num_groups must divide the number of channels, " +
            std::to_string(channels) + ", but is " +
            std::to_string(a.num_groups) + ".");
  }
  NormSpec spec;
  spec.groups = a.num_groups;
  spec.strided = !a.pytorch_compatible;
  return normalize(op, spec, a)[0];
}

array instance_norm(const GroupNormArguments& a) {
  const char* op = "instance_norm";
  check_axes(op, *a.x, 3, "[batch, ..., channels]");
  return normalize(op, {}, a)[0];
}

Arrays batch_norm(const GroupNormArguments& a) {
  const char* op = "batch_norm";
  const auto& x = *a.x;
  auto *mean = a.mean, *var = a.var;
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
  if (a.training && values == 1) {
    refuse(
        op,
        "x must have more than one value per channel in training but has "
        "shape " +
            text(x.shape()) + ".");
  }
  NormSpec spec;
  spec.sample_axes = 0;
  auto outputs = normalize(op, spec, a, /* running= */ mean && !a.training);
  if (!mean || !a.training) {
    return {outputs[0]};
  }
  auto s = mx::to_stream(a.stream);
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
       array(1.0f - a.momentum),
       array(a.momentum),
       array(0.0f, x.dtype())},
      s);
  return {outputs[0], statistics[0], statistics[1]};
}

} // namespace mlx_norms
