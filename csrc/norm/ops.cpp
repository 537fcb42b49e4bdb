// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/ops.h"

#include "csrc/common/checks.h"
#include "csrc/norm/channels/checks.h"
#include "csrc/norm/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

namespace {

// An option that does not go with some others.
struct Option {
  const char* name;
  const char* off; // what it must be beside them
  bool (*is_given)(const NormArguments&);
};

using A = const NormArguments&;
constexpr Option kScaleOption{"scale", "None", [](A a) { return !!a.scale; }};
constexpr Option kShiftOption{"shift", "None", [](A a) { return !!a.shift; }};
constexpr Option kGateOption{"gate", "None", [](A a) { return !!a.in[kGate]; }};
constexpr Option kActivationOption{"activation", "None", [](A a) {
                                     return !!a.activation;
                                   }};
constexpr Option kGroupsOption{"num_groups", "1", [](A a) {
                                 return a.num_groups != 1;
                               }};
constexpr Option kGroupOption{"group", "None", [](A a) { return !!a.group; }};
constexpr Option kInputWeightOption{"input_weight", "None", [](A a) {
                                      return !!a.input_weight;
                                    }};
constexpr Option kAxisOption{"axis", "the last one", [](A a) {
                               return a.axis != -1 &&
                                   a.axis + 1 !=
                                   static_cast<int>(a.in.x().ndim());
                             }};

// What has no kernel beside what: the table in docs/ops.md.
constexpr struct {
  Option option;
  std::initializer_list<Option> beside;
} kExclusions[] = {
    {kScaleOption, {kGateOption, kActivationOption, kGroupsOption}},
    {kShiftOption, {kGateOption, kActivationOption, kGroupsOption}},
    {kInputWeightOption,
     {kScaleOption, kShiftOption, kGateOption, kActivationOption}},
    {kGroupOption,
     {kInputWeightOption,
      kScaleOption,
      kShiftOption,
      kGateOption,
      kActivationOption,
      kGroupsOption}},
    {kAxisOption,
     {kInputWeightOption,
      kScaleOption,
      kShiftOption,
      kGateOption,
      kGroupsOption,
      kGroupOption}},
    {{"clamp", "False", [](A a) { return a.clamp; }},
     {{"residual2", "None", [](A a) { return !!a.in[kResidual2]; }}}},
};

void refuse_together(const char* op, const NormArguments& a) {
  for (const auto& [option, beside] : kExclusions) {
    if (!option.is_given(a)) {
      continue;
    }
    for (const auto& other : beside) {
      if (other.is_given(a)) {
        refuse(
            op,
            std::string(option.name) + " must be " + option.off + " with " +
                other.name + ".");
      }
    }
  }
}

mx::Dtype dtype_of(const NormArguments& a) {
  return a.dtype.value_or(a.in.x().dtype());
}

// A number becomes an array in the result's dtype, a view of a row of it.
OptionalArray
as_array(const OptionalTerm& term, const NormArguments& a, mx::Stream stream) {
  auto* number = term ? std::get_if<float>(&*term) : nullptr;
  if (!number) {
    return term ? OptionalArray(std::get<array>(*term)) : std::nullopt;
  }
  const auto& x = a.in.x();
  auto dtype = dtype_of(a);
  array one(*number, takes_dtype(dtype) ? dtype : x.dtype());
  if (x.ndim() == 0) {
    return one; // the error is x's
  }
  // A shapeless x has rows of another length when it is computed.
  return x.is_tracer() ? mx::broadcast_arrays({one, x}, stream)[0]
                       : mx::broadcast_to(one, {x.shape(-1)}, stream);
}

NormSpec make_spec(
    const char* op,
    bool center,
    const NormInputs& in,
    const NormArguments& a) {
  auto spec = spec_of(op, center, in, a.eps, a.weight_offset);
  if (a.dtype) {
    check_dtype(op, "dtype", *a.dtype);
  }
  spec.clamp = a.clamp;
  spec.factor = number_of(a.factor, in.x().dtype());
  if (auto* residual = in[kResidual]) {
    spec.alpha = rounded_to(a.alpha, residual->dtype());
  }
  spec.activation = parse_activation(op, a.activation);
  spec.gate_first = in[kGate] && (a.input_weight || !a.norm_before_gate);
  spec.rounding = parse_rounding(op, a.rounding, a.weight_offset);
  return spec;
}

// The operands, of which a weight of x is a gate without an activation.
NormInputs
checked(const char* op, const NormArguments& a, NormInputs in, bool heads) {
  check_inputs(op, in, heads);
  if (a.input_weight) {
    check_broadcasts(op, "input_weight", *a.input_weight, in.x());
    in[kGate] = a.input_weight;
  }
  return in;
}

// Each of so many parts of each row by itself.
array normalize_groups(
    const char* op,
    const NormInputs& given,
    const NormArguments& a,
    mx::Stream stream) {
  auto in = checked(op, a, given, /* heads= */ false);
  int groups = a.num_groups;
  auto length = in.x().shape(-1);
  if (groups < 1 || length % groups != 0) {
    refuse(
        op,
        "num_groups must be positive and divide x's last axis of " +
            std::to_string(length) + " but is " + std::to_string(groups) + ".");
  }
  PerOperand<OptionalArray> split;
  NormInputs parts = in;
  for (auto operand : in.present()) {
    split[operand] =
        mx::unflatten(*in[operand], -1, {groups, length / groups}, stream);
    parts[operand] = &*split[operand];
  }
  auto spec = make_spec(op, /* center= */ false, parts, a);
  auto y = make_norm(spec, dtype_of(a), parts.arrays(), stream)[0];
  return mx::flatten(y, -2, -1, stream);
}

// {normalized, [sum]}
Arrays normalize(const char* op, bool center, const NormArguments& a) {
  auto in = a.in;
  int channels = channel_axis(op, in.x(), a.axis);
  refuse_together(op, a);
  auto stream = mx::to_stream(a.stream);
  in[kFactor] = array_of(a.factor);
  if (channels) {
    check_channels(op, channels, in);
    auto spec = make_spec(op, center, in, a);
    spec.axis = channels;
    return make_norm(spec, dtype_of(a), in.arrays(), stream);
  }
  if (a.num_groups != 1) {
    return {normalize_groups(op, in, a, stream)};
  }
  if (a.group && a.group->size() > 1) {
    check_inputs(op, in);
    auto spec = make_spec(op, center, in, a);
    return {sharded_rms_norm(spec, dtype_of(a), in, *a.group, stream)};
  }
  auto scale = as_array(a.scale, a, stream);
  auto shift = as_array(a.shift, a, stream);
  in[kScale] = pointer_to(scale);
  in[kShift] = pointer_to(shift);
  in = checked(op, a, in, /* heads= */ true);
  auto spec = make_spec(op, center, in, a);
  return make_norm(spec, dtype_of(a), in.arrays(), stream);
}

array only(Arrays outputs) {
  return std::move(outputs[0]);
}

TwoArrays as_pair(Arrays outputs) {
  return {std::move(outputs[0]), std::move(outputs.at(1))};
}

std::string item(const char* argument, size_t i) {
  return argument + ("[" + std::to_string(i) + "]");
}

// An item of a list for each array, if the list is given.
template <typename T>
void check_length(
    const char* op,
    const Arrays& xs,
    const char* argument,
    const std::optional<std::vector<T>>& items) {
  if (items && items->size() != xs.size()) {
    refuse(
        op,
        std::string(argument) + " must have as many items as xs, " +
            std::to_string(xs.size()) + ", but has " +
            std::to_string(items->size()) + ".");
  }
}

Arrays normalize_together(const char* op, bool l2, const NormsArguments& a) {
  const auto& [xs, weights, multipliers, eps, eps_inside, offset, rounding, dtype, stream] =
      a;
  if (xs.empty() || xs.size() > kMaxTogether) {
    refuse(
        op,
        "xs must have 1 to " + std::to_string(kMaxTogether) +
            " arrays but has " + std::to_string(xs.size()) + ".");
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    check_rows(op, item("xs", i).c_str(), xs[i]);
  }
  check_length(op, xs, "multipliers", multipliers);
  check_length(op, xs, "weights", weights);
  if (dtype) {
    check_dtype(op, "dtype", *dtype);
  }
  auto weight_of = [&](size_t i) {
    return weights ? pointer_to((*weights)[i]) : nullptr;
  };
  NormInputs any{{kX, &xs[0]}};
  for (size_t i = 0; i < xs.size(); ++i) {
    if (auto* weight = weight_of(i)) {
      auto name = item("weights", i), of = item("xs", i);
      check_head_weight(op, name.c_str(), *weight, of.c_str(), xs[i]);
      any[kWeight] = weight;
    }
  }
  auto shared = spec_of(op, /* center= */ false, any, eps, offset);
  shared.rounding = parse_rounding(op, rounding, offset);
  shared.l2 = l2;
  shared.eps_bounds = l2 && !eps_inside;
  std::vector<NormSpec> specs;
  Dtypes dtypes;
  Arrays inputs;
  for (size_t i = 0; i < xs.size(); ++i) {
    NormInputs in{{kX, &xs[i]}, {kWeight, weight_of(i)}};
    in.append_to(inputs);
    dtypes.push_back(dtype.value_or(xs[i].dtype()));
    auto& spec = specs.emplace_back(shared);
    spec.operands = in.present();
    if (multipliers) {
      auto by = (*multipliers)[i];
      bool early = spec.rounding == Rounding::Early;
      spec.multiplier = early ? rounded_to(by, dtypes[i]) : by;
    }
  }
  return make(Norm(specs, dtypes), std::move(inputs), mx::to_stream(stream));
}

} // namespace

const array* array_of(const OptionalTerm& term) {
  return term ? std::get_if<array>(&*term) : nullptr;
}

float number_of(const OptionalTerm& factor, mx::Dtype dtype) {
  auto* number = factor ? std::get_if<float>(&*factor) : nullptr;
  return number ? rounded_to(*number, dtype) : 1.0f;
}

array rms_norm(const NormArguments& arguments) {
  return only(normalize("rms_norm", /* center= */ false, arguments));
}

array layer_norm(const NormArguments& arguments) {
  return only(normalize("layer_norm", /* center= */ true, arguments));
}

array l2_norm(const NormArguments& a) {
  const char* op = "l2_norm";
  check_inputs(op, a.in);
  auto spec = make_spec(op, /* center= */ false, a.in, a);
  spec.l2 = true;
  spec.eps_bounds = !a.eps_inside;
  return only(
      make_norm(spec, dtype_of(a), a.in.arrays(), mx::to_stream(a.stream)));
}

TwoArrays add_rms_norm(const NormArguments& arguments) {
  return as_pair(normalize("add_rms_norm", /* center= */ false, arguments));
}

TwoArrays norm_add_norm(const NormArguments& a) {
  const char* op = "norm_add_norm";
  auto in = a.in;
  in[kFactor] = array_of(a.factor);
  check_inputs(op, in);
  if (a.weight_offset != 0.0f && !in[kPostWeight]) {
    refuse(
        op,
        "weight_offset is " + text(a.weight_offset) +
            " but there is no post_weight to add it to.");
  }
  auto spec = make_spec(op, /* center= */ false, in, a);
  spec.norm_first = true;
  return as_pair(
      make_norm(spec, dtype_of(a), in.arrays(), mx::to_stream(a.stream)));
}

TwoArrays add_layer_norm(const NormArguments& arguments) {
  return as_pair(normalize("add_layer_norm", /* center= */ true, arguments));
}

Arrays rms_norms(const NormsArguments& arguments) {
  return normalize_together("rms_norms", /* l2= */ false, arguments);
}

Arrays l2_norms(const NormsArguments& arguments) {
  return normalize_together("l2_norms", /* l2= */ true, arguments);
}

} // namespace mlx_norms
