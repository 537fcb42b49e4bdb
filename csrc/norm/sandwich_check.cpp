// Copyright © 2026 mlx_norms contributors

#include "csrc/common/self_check.h"
#include "csrc/norm/sandwich_vjp.h"

namespace mlx_norms {

namespace {

// The options by which kernels are specialized.
SandwichSpec flags_of(SandwichSpec spec) {
  spec.eps = 1e-5f;
  spec.weight_offset = spec.weight_offset != 0 ? 1.0f : 0.0f;
  return spec;
}

self_check::Key key_of(
    std::string_view op,
    const SandwichSpec& spec,
    const Arrays& inputs,
    const std::vector<mx::Dtype>& dtypes) {
  std::vector<int64_t> numbers{
      inputs[0].shape(-1),
      spec.post_weight,
      spec.weight,
      spec.clamp,
      spec.late(),
      spec.weight_offset != 0};
  for (auto dtype : dtypes) {
    numbers.push_back(static_cast<int64_t>(dtype.val()));
  }
  for (const auto& a : inputs) {
    numbers.push_back(static_cast<int64_t>(a.dtype().val()));
  }
  return {op, std::move(numbers)};
}

// Such inputs with as many rows; the weights come after two arrays of rows.
Arrays few_rows(
    const SandwichSpec& spec,
    const Arrays& inputs,
    int rows,
    bool large,
    mx::Stream s) {
  Arrays few;
  int weights = spec.post_weight + spec.weight;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    bool has_rows = i < 2 || i >= 2 + weights;
    int length = inputs[i].shape(-1);
    auto shape = has_rows ? mx::Shape{rows, length} : mx::Shape{length};
    few.push_back(
        self_check::values(
            shape, inputs[i].dtype(), 17 * i + 1, large && has_rows, s));
  }
  return few;
}

} // namespace

bool agrees(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].shape(-1) == 0) {
    return true;
  }
  auto flags = flags_of(spec);
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) { return few_rows(spec, inputs, 4, spec.clamp, s); },
        [&](Arrays few, mx::Stream s) {
          return norm_add_norm_node(flags, dtype, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          return fallback_norm_add_norm(flags, dtype, few, s);
        },
        /* donates= */ true};
  };
  auto key = key_of("norm_add_norm", spec, inputs, {dtype});
  return self_check::agrees(std::move(key), stream.device, sample, [&] {
    return std::string("of ") + NormAddNorm(stream, spec, dtype).name() + " " +
        self_check::described(inputs, dtype);
  });
}

bool agrees(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].shape(-1) == 0) {
    return true;
  }
  auto flags = spec;
  flags.norms = flags_of(spec.norms);
  auto sample = [&] {
    return self_check::Sample{
        // Enough rows that weights' gradients add up several partial sums.
        [&](mx::Stream s) {
          return few_rows(spec.norms, inputs, 20, /* large= */ false, s);
        },
        [&](Arrays few, mx::Stream s) {
          return norm_add_norm_vjp_node(flags, dtypes, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          return fallback_norm_add_norm_vjp(flags, dtypes, few, s);
        },
        /* donates= */ true};
  };
  auto key = key_of("norm_add_norm_vjp", spec.norms, inputs, dtypes);
  for (auto flag : {spec.post_weight, spec.weight}) {
    key.numbers.push_back(flag);
  }
  return self_check::agrees(std::move(key), stream.device, sample, [&] {
    return std::string("of ") + NormAddNormVJP(stream, spec, dtypes).name() +
        " " + self_check::described(inputs, dtypes[0]);
  });
}

} // namespace mlx_norms
