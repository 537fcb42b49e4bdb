// Copyright © 2026 mlx_norms contributors

#include "csrc/common/self_check.h"
#include "csrc/norm/sandwich.h"

namespace mlx_norms {

bool agrees(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  int length = inputs[0].shape(-1);
  if (length == 0) {
    return true;
  }
  std::vector<int64_t> numbers{
      length,
      spec.post_weight,
      spec.weight,
      spec.clamp,
      spec.late(),
      spec.weight_offset != 0,
      static_cast<int64_t>(dtype.val())};
  for (const auto& a : inputs) {
    numbers.push_back(static_cast<int64_t>(a.dtype().val()));
  }
  auto flags = spec;
  flags.eps = 1e-5f;
  flags.weight_offset = spec.weight_offset != 0 ? 1.0f : 0.0f;
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) {
          Arrays few;
          for (size_t i = 0; i < inputs.size(); ++i) {
            bool rows = i < 2;
            auto shape = rows ? mx::Shape{4, length} : mx::Shape{length};
            few.push_back(
                self_check::values(
                    shape,
                    inputs[i].dtype(),
                    17 * i + 1,
                    spec.clamp && rows,
                    s));
          }
          return few;
        },
        [&](Arrays few, mx::Stream s) {
          return norm_add_norm_node(flags, dtype, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          return fallback_norm_add_norm(flags, dtype, few, s);
        },
        /* donates= */ true};
  };
  return self_check::agrees(
      {"norm_add_norm", std::move(numbers)}, stream.device, sample, [&] {
        return std::string("of ") + NormAddNorm(stream, spec, dtype).name() +
            " " + self_check::described(inputs, dtype);
      });
}

} // namespace mlx_norms
