// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/self_check.h"

#include <algorithm>

#include "csrc/norm/fallback.h"
#include "csrc/norm/nodes.h"

namespace mlx_norms {

namespace {

constexpr int kHeads = 2;

// 1: of all rows, 2: of heads, 3: of other groups of rows.
int kind_of_parameter(const array& parameter) {
  return std::clamp<int>(parameter.ndim(), 1, 3);
}

// Arrays like these inputs, with few rows of two heads each. A parameter has
// one row, one for each head or one for each pair of rows; the input of this
// index has one element.
template <typename F>
Arrays few_rows(
    const Arrays& inputs,
    int rows,
    bool large,
    F parameter,
    int one_element,
    mx::Stream s) {
  Arrays few;
  int length = inputs[0].shape(-1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    mx::Shape shape{rows, kHeads, length};
    if (static_cast<int>(i) == one_element) {
      shape = {1};
    } else if (parameter(i)) {
      switch (kind_of_parameter(inputs[i])) {
        case 1:
          shape = {length};
          break;
        case 2:
          shape = {kHeads, length};
          break;
        default:
          shape = {rows, 1, length};
      }
    }
    few.push_back(
        self_check::values(
            shape, inputs[i].dtype(), 17 * i + 1, large && !parameter(i), s));
  }
  return few;
}

// `parameter(i)` says whether the i-th input is no array of x's shape.
template <typename F>
self_check::Key key_of(
    const char* op,
    const NormSpec& spec,
    const Arrays& inputs,
    F parameter) {
  std::vector<int64_t> numbers{inputs[0].shape(-1)};
  append_flags(spec, numbers);
  for (size_t i = 0; i < inputs.size(); ++i) {
    numbers.push_back(static_cast<int64_t>(inputs[i].dtype().val()));
    numbers.push_back(parameter(i) ? kind_of_parameter(inputs[i]) : 0);
  }
  return {op, std::move(numbers)};
}

} // namespace

NormSpec flags_of(NormSpec spec) {
  spec.eps = 1e-5f;
  spec.weight_offset = spec.weight_offset != 0 ? 1.0f : 0.0f;
  spec.number = spec.number != 1 ? 0.75f : 1.0f;
  return spec;
}

void append_flags(const NormSpec& spec, std::vector<int64_t>& numbers) {
  numbers.insert(
      numbers.end(),
      {spec.center,
       spec.l2,
       spec.eps_bounds,
       spec.residual,
       spec.weight,
       spec.bias,
       spec.scale,
       spec.shift,
       spec.factor,
       spec.number != 1,
       spec.factor_of_sum,
       spec.gate,
       spec.gate_first,
       static_cast<int64_t>(spec.activation),
       spec.identity,
       spec.clamp,
       static_cast<int64_t>(spec.rounding),
       spec.weight_offset != 0});
}

bool agrees(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].shape(-1) == 0) {
    return true;
  }
  auto gate = NormPositions(spec, 0).gate;
  auto parameter = [&](size_t i) {
    auto at = static_cast<int>(i) % spec.n_inputs();
    return at > spec.residual && at != gate;
  };
  int one_element = spec.factor_of_sum ? NormPositions(spec, 0).factor : -1;
  auto key = key_of("norm", spec, inputs, parameter);
  key.numbers.push_back(static_cast<int64_t>(dtype.val()));
  auto flags = flags_of(spec);
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) {
          return few_rows(inputs, 2, spec.clamp, parameter, one_element, s);
        },
        [&](Arrays few, mx::Stream s) {
          return norm_node(flags, dtype, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          return fallback_norms(flags, dtype, few, s);
        },
        /* donates= */ true};
  };
  return self_check::agrees(std::move(key), stream.device, sample, [&] {
    return self_check::described(
        Norm(stream, spec, dtype).name(), inputs, dtype);
  });
}

bool agrees(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].shape(-1) == 0) {
    return true;
  }
  auto parameter = [&](size_t i) { return spec.norm.weight && i == 1; };
  auto key = key_of("norm_vjp", spec.norm, inputs, parameter);
  for (auto flag : {spec.input, spec.gate, spec.weight, spec.bias}) {
    key.numbers.push_back(flag);
  }
  for (auto dtype : dtypes) {
    key.numbers.push_back(static_cast<int64_t>(dtype.val()));
  }
  auto flags = spec;
  flags.norm = flags_of(spec.norm);
  auto sample = [&] {
    return self_check::Sample{
        // Enough rows that parameters' gradients add up several partial sums.
        [&](mx::Stream s) {
          return few_rows(inputs, 20, /* large= */ false, parameter, -1, s);
        },
        [&](Arrays few, mx::Stream s) {
          return norm_vjp_node(flags, dtypes, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          NormVJPInputs in(flags.norm, few.data());
          return fallback_norm_vjp(flags, dtypes, in, s);
        },
        /* donates= */ true};
  };
  return self_check::agrees(std::move(key), stream.device, sample, [&] {
    return self_check::described(
        NormVJP(stream, spec, dtypes).name(), inputs, dtypes[0]);
  });
}

} // namespace mlx_norms
