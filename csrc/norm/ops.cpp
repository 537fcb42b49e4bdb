// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/ops.h"

#include <span>

#include "csrc/common/checks.h"
#include "csrc/norm/channels/checks.h"
#include "csrc/norm/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

namespace {

// The arguments of every op besides its arrays.
struct Options {
  float eps;
  float weight_offset;
  bool clamp;
  const OptionalString& rounding;
  OptionalDtype dtype;
  mx::StreamOrDevice stream;
  float number = 1.0f; // a factor of x
  Activation activation = Activation::None;
  bool gate_first = false;
};

// Of a number, in the output's dtype, a view of a row of it.
OptionalArray as_array(
    const OptionalTerm& term,
    const NormInputs& in,
    const Options& options) {
  auto* number = term ? std::get_if<float>(&*term) : nullptr;
  if (!number) {
    return term ? OptionalArray(std::get<mx::array>(*term)) : std::nullopt;
  }
  const auto& x = in.x();
  auto dtype = options.dtype.value_or(in.sum_dtype());
  mx::array one(*number, takes_dtype(dtype) ? dtype : x.dtype());
  if (x.ndim() == 0) {
    return one; // the error is x's
  }
  // A shapeless x has rows of another length when it is computed.
  return x.is_tracer() ? mx::broadcast_arrays({one, x}, options.stream)[0]
                       : mx::broadcast_to(one, {x.shape(-1)}, options.stream);
}

NormSpec make_spec(
    const char* op,
    bool center,
    const NormInputs& in,
    const Options& options) {
  auto spec = spec_of(op, center, in, options.eps, options.weight_offset);
  if (options.dtype) {
    check_dtype(op, "dtype", *options.dtype);
  }
  spec.clamp = options.clamp;
  spec.number = options.number;
  spec.activation = options.activation;
  spec.gate_first = options.gate_first;
  spec.rounding = parse_rounding(op, options.rounding, options.weight_offset);
  return spec;
}

Arrays normalize(
    const char* op,
    bool center,
    const NormInputs& in,
    const Options& options) {
  return make_norm(
      make_spec(op, center, in, options),
      options.dtype.value_or(in.sum_dtype()),
      in.arrays(),
      mx::to_stream(options.stream));
}

// RMSNorms with these options, each with its weight or none and, unless there
// are none, its multiplier.
Arrays normalize_together(
    NormSpec spec,
    std::span<const NormInputs> tensors,
    const Multipliers& multipliers,
    const Options& options) {
  std::vector<NormSpec> specs;
  Dtypes dtypes;
  Arrays inputs;
  for (const auto& in : tensors) {
    auto dtype = options.dtype.value_or(in.x().dtype());
    spec.operands = in.present();
    if (multipliers) {
      auto by = (*multipliers)[specs.size()];
      bool early = spec.rounding == Rounding::Early;
      spec.multiplier = early ? rounded_to(by, dtype) : by;
    }
    specs.push_back(spec);
    dtypes.push_back(dtype);
    in.append_to(inputs);
  }
  auto stream = mx::to_stream(options.stream);
  return make(Norm(specs, dtypes), std::move(inputs), stream);
}

std::string item(const char* argument, size_t i) {
  return argument + ("[" + std::to_string(i) + "]");
}

void check_lengths(
    const char* op,
    const Arrays& xs,
    const char* argument,
    size_t length) {
  if (length != xs.size()) {
    refuse(
        op,
        std::string(argument) + " must have as many items as xs, " +
            std::to_string(xs.size()) + ", but has " + std::to_string(length) +
            ".");
  }
}

void check_tensors(
    const char* op,
    const Arrays& xs,
    const Multipliers& scales) {
  if (xs.empty() || xs.size() > kMaxTogether) {
    refuse(
        op,
        "xs must have 1 to " + std::to_string(kMaxTogether) +
            " arrays but has " + std::to_string(xs.size()) + ".");
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    check_rows(op, item("xs", i).c_str(), xs[i]);
  }
  if (scales) {
    check_lengths(op, xs, "scales", scales->size());
  }
}

Arrays normalize_rows(
    const char* op,
    bool center,
    const NormInputs& in,
    const Options& options) {
  check_inputs(op, in);
  return normalize(op, center, in, options);
}

void refuse_modulation(
    const char* op,
    const OptionalTerm& scale,
    const OptionalTerm& shift,
    const char* beside) {
  if (scale || shift) {
    refuse(
        op,
        std::string(scale ? "scale" : "shift") + " must be None with " +
            beside + ".");
  }
}

// Of adaptive norms.
Arrays normalize_modulated(
    const char* op,
    bool center,
    NormInputs in,
    const Options& options,
    const OptionalTerm& scale,
    const OptionalTerm& shift) {
  auto scales = as_array(scale, in, options);
  auto shifts = as_array(shift, in, options);
  in[kScale] = pointer_to(scales);
  in[kShift] = pointer_to(shifts);
  return normalize_rows(op, center, in, options);
}

mx::array only(Arrays outputs) {
  return std::move(outputs[0]);
}

// Each of so many parts of each row by itself.
mx::array normalize_groups(
    const char* op,
    const NormInputs& in,
    const Options& options,
    int groups) {
  check_inputs(op, in);
  auto length = in.x().shape(-1);
  if (groups < 1 || length % groups != 0) {
    refuse(
        op,
        "num_groups must be positive and divide x's last axis of " +
            std::to_string(length) + " but is " + std::to_string(groups) + ".");
  }
  auto stream = mx::to_stream(options.stream);
  PerOperand<OptionalArray> split;
  NormInputs parts = in;
  for (auto operand : in.present()) {
    split[operand] =
        mx::unflatten(*in[operand], -1, {groups, length / groups}, stream);
    parts[operand] = &*split[operand];
  }
  auto y = only(normalize(op, /* center= */ false, parts, options));
  return mx::flatten(y, -2, -1, stream);
}

mx::array normalize_parts_of_rows(
    const char* op,
    const NormInputs& in,
    const Options& options,
    const mx::distributed::Group& group) {
  check_inputs(op, in);
  auto spec = make_spec(op, /* center= */ false, in, options);
  return sharded_rms_norm(
      spec,
      options.dtype.value_or(in.x().dtype()),
      in,
      group,
      mx::to_stream(options.stream));
}

// Each head, with parameters for all or one each.
mx::array normalize_heads(
    const char* op,
    bool center,
    const NormInputs& in,
    const Options& options) {
  check_heads(op, "x", in.x());
  for (auto operand : in.present().without({kX})) {
    auto* argument = kOperandTraits[operand].name;
    check_head_weight(op, argument, *in[operand], "x", in.x());
  }
  return only(normalize(op, center, in, options));
}

// Over an axis that is not the last one (see channel_axis).
mx::array normalize_channels(
    const char* op,
    bool center,
    int axis,
    const NormInputs& in,
    const Options& options) {
  check_channels(op, axis, in);
  auto spec = make_spec(op, center, in, options);
  return make_channel_norm(
      spec,
      axis,
      options.dtype.value_or(in.x().dtype()),
      in.arrays(),
      mx::to_stream(options.stream));
}

std::pair<mx::array, mx::array> as_pair(Arrays outputs) {
  return {std::move(outputs[0]), std::move(outputs[1])};
}

// Of residual + factor * x, plus residual2.
std::pair<mx::array, mx::array> normalize_sum(
    const char* op,
    bool center,
    NormInputs in,
    Options options,
    const OptionalTerm& factor,
    const OptionalTerm& scale,
    const OptionalTerm& shift) {
  if (in[kResidual2] && options.clamp) {
    refuse(op, "clamp must be False with a residual2.");
  }
  in[kFactor] = factor ? std::get_if<mx::array>(&*factor) : nullptr;
  options.number = number_of(factor, in.x().dtype());
  return as_pair(normalize_modulated(op, center, in, options, scale, shift));
}

} // namespace

float number_of(const OptionalTerm& factor, mx::Dtype dtype) {
  auto* number = factor ? std::get_if<float>(&*factor) : nullptr;
  return number ? rounded_to(*number, dtype) : 1.0f;
}

OptionalArray plain_norm(
    bool center,
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps) {
  if (!takes_dtype(x.dtype()) || x.ndim() == 0 || !(eps >= 0)) {
    return {};
  }
  NormSpec spec{.center = center, .eps = eps};
  Arrays inputs;
  inputs.reserve(3);
  inputs.push_back(x);
  for (auto [operand, v] : {std::pair(kWeight, weight), {kBias, bias}}) {
    if (v) {
      if (!takes_dtype(v->dtype()) || !is_vector(*v, x.shape(-1))) {
        return {};
      }
      spec.operands.set(operand);
      inputs.push_back(*v);
    }
  }
  return only(make_norm(spec, x.dtype(), std::move(inputs), mx::to_stream({})));
}

mx::array rms_norm(
    const mx::array& x,
    const mx::array* weight,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    const OptionalTerm& scale,
    const OptionalTerm& shift,
    const mx::array* gate,
    const OptionalString& activation,
    bool norm_before_gate,
    int num_groups,
    OptionalDtype dtype,
    const OptionalGroup& group,
    int axis,
    mx::StreamOrDevice stream) {
  const char* op = "rms_norm";
  NormInputs in{{kX, &x}, {kWeight, weight}, {kGate, gate}};
  Options options{eps, weight_offset, false, rounding, dtype, stream};
  options.activation = parse_activation(op, activation);
  options.gate_first = gate && !norm_before_gate;
  const char* gated = gate ? "gate"
      : activation         ? "activation"
      : num_groups != 1    ? "num_groups"
                           : nullptr;
  if (gated) {
    refuse_modulation(op, scale, shift, gated);
  }
  auto* other = scale ? "scale" : shift ? "shift" : gated;
  if (group && other) {
    refuse(op, std::string("group must be None with ") + other + ".");
  }
  if (auto channels = channel_axis(op, x, axis)) {
    refuse_beside_axis(
        op,
        {{"scale", scale.has_value()},
         {"shift", shift.has_value()},
         {"gate", gate},
         {"num_groups", num_groups != 1},
         {"group", group.has_value()}});
    return normalize_channels(op, /* center= */ false, channels, in, options);
  }
  if (num_groups != 1) {
    return normalize_groups(op, in, options, num_groups);
  }
  if (group && group->size() > 1) {
    return normalize_parts_of_rows(op, in, options, *group);
  }
  return only(
      normalize_modulated(op, /* center= */ false, in, options, scale, shift));
}

std::vector<mx::array> rms_norms(
    const std::vector<mx::array>& xs,
    const Weights& weights,
    float eps,
    float weight_offset,
    const Multipliers& scales,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  const char* op = "rms_norms";
  check_tensors(op, xs, scales);
  if (weights) {
    check_lengths(op, xs, "weights", weights->size());
  }
  std::vector<NormInputs> tensors;
  const NormInputs* weighted = nullptr;
  tensors.reserve(xs.size());
  for (size_t i = 0; i < xs.size(); ++i) {
    auto* weight = weights ? pointer_to((*weights)[i]) : nullptr;
    const auto& in =
        tensors.emplace_back(NormInputs{{kX, &xs[i]}, {kWeight, weight}});
    if (weight) {
      check_vector(op, item("weights", i).c_str(), *weight, xs[i]);
      weighted = &in;
    }
  }
  Options options{eps, weight_offset, false, rounding, dtype, stream};
  const auto& any = weighted ? *weighted : tensors[0];
  auto spec = make_spec(op, /* center= */ false, any, options);
  return normalize_together(spec, tensors, scales, options);
}

namespace {

NormSpec make_l2_spec(
    const char* op,
    const NormInputs& in,
    const Options& options,
    bool eps_inside) {
  auto spec = make_spec(op, /* center= */ false, in, options);
  spec.l2 = true;
  spec.eps_bounds = !eps_inside;
  return spec;
}

} // namespace

mx::array l2_norm(
    const mx::array& x,
    float eps,
    bool eps_inside,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  const char* op = "l2_norm";
  NormInputs in{{kX, &x}};
  check_inputs(op, in);
  auto spec =
      make_l2_spec(op, in, {eps, 0.0f, false, {}, dtype, stream}, eps_inside);
  return only(
      make_norm(spec, dtype.value_or(x.dtype()), {x}, mx::to_stream(stream)));
}

std::vector<mx::array> l2_norms(
    const std::vector<mx::array>& xs,
    const Multipliers& scales,
    float eps,
    bool eps_inside,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  const char* op = "l2_norms";
  check_tensors(op, xs, scales);
  std::vector<NormInputs> tensors;
  for (const auto& x : xs) {
    tensors.push_back({{kX, &x}});
  }
  Options options{eps, 0.0f, false, {}, dtype, stream};
  auto spec = make_l2_spec(op, tensors[0], options, eps_inside);
  return normalize_together(spec, tensors, scales, options);
}

mx::array layer_norm(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    const OptionalTerm& scale,
    const OptionalTerm& shift,
    const OptionalString& activation,
    OptionalDtype dtype,
    int axis,
    mx::StreamOrDevice stream) {
  const char* op = "layer_norm";
  NormInputs in{{kX, &x}, {kWeight, weight}, {kBias, bias}};
  Options options{eps, weight_offset, false, rounding, dtype, stream};
  options.activation = parse_activation(op, activation);
  if (activation) {
    refuse_modulation(op, scale, shift, "activation");
  }
  if (auto channels = channel_axis(op, x, axis)) {
    refuse_beside_axis(
        op, {{"scale", scale.has_value()}, {"shift", shift.has_value()}});
    return normalize_channels(op, /* center= */ true, channels, in, options);
  }
  return only(
      normalize_modulated(op, /* center= */ true, in, options, scale, shift));
}

std::pair<mx::array, mx::array> add_rms_norm(
    const mx::array& x,
    const mx::array& residual,
    const mx::array* weight,
    float eps,
    float weight_offset,
    bool clamp,
    const OptionalString& rounding,
    const mx::array* residual2,
    const OptionalTerm& factor,
    const OptionalTerm& scale,
    const OptionalTerm& shift,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  return normalize_sum(
      "add_rms_norm",
      /* center= */ false,
      {{kX, &x},
       {kResidual, &residual},
       {kResidual2, residual2},
       {kWeight, weight}},
      {eps, weight_offset, clamp, rounding, dtype, stream},
      factor,
      scale,
      shift);
}

std::pair<mx::array, mx::array> add_layer_norm(
    const mx::array& x,
    const mx::array& residual,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    float weight_offset,
    bool clamp,
    const OptionalString& rounding,
    const mx::array* residual2,
    const OptionalTerm& factor,
    const OptionalTerm& scale,
    const OptionalTerm& shift,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  return normalize_sum(
      "add_layer_norm",
      /* center= */ true,
      {{kX, &x},
       {kResidual, &residual},
       {kResidual2, residual2},
       {kWeight, weight},
       {kBias, bias}},
      {eps, weight_offset, clamp, rounding, dtype, stream},
      factor,
      scale,
      shift);
}

mx::array head_rms_norm(
    const mx::array& x,
    const mx::array* weight,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  return normalize_heads(
      "head_rms_norm",
      /* center= */ false,
      {{kX, &x}, {kWeight, weight}},
      {eps, weight_offset, false, rounding, dtype, stream});
}

mx::array head_layer_norm(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  return normalize_heads(
      "head_layer_norm",
      /* center= */ true,
      {{kX, &x}, {kWeight, weight}, {kBias, bias}},
      {eps, weight_offset, false, rounding, dtype, stream});
}

std::pair<mx::array, mx::array> qk_norm(
    const mx::array& q,
    const mx::array& k,
    const mx::array* q_weight,
    const mx::array* k_weight,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream) {
  const char* op = "qk_norm";
  check_heads(op, "q", q);
  check_heads(op, "k", k);
  if (k.shape(-1) != q.shape(-1)) {
    refuse(
        op,
        "k must have q's head_dim " + std::to_string(q.shape(-1)) +
            " but has " + std::to_string(k.shape(-1)) + ".");
  }
  if (k.dtype() != q.dtype()) {
    refuse(
        op,
        "k must have q's dtype " + text(q.dtype()) + " but is " +
            text(k.dtype()) + ".");
  }
  if ((q_weight == nullptr) != (k_weight == nullptr)) {
    refuse(
        op,
        std::string(q_weight ? "k_weight" : "q_weight") +
            " must be given too: q and k are normalized alike.");
  }
  if (q_weight) {
    check_head_weight(op, "q_weight", *q_weight, "q", q);
    check_head_weight(op, "k_weight", *k_weight, "k", k);
  }
  Options options{eps, weight_offset, false, rounding, dtype, stream};
  NormInputs tensors[] = {
      {{kX, &q}, {kWeight, q_weight}}, {{kX, &k}, {kWeight, k_weight}}};
  auto spec = make_spec(op, /* center= */ false, tensors[0], options);
  return as_pair(normalize_together(spec, tensors, {}, options));
}

} // namespace mlx_norms
