// Copyright © 2026 mlx_norms contributors

#include "csrc/common/self_check.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/channels/geometry.h"
#include "csrc/norm/view.h"

namespace mlx_norms {

void append_columns(
    const NormSpec& spec,
    const array& x,
    std::vector<int64_t>& numbers) {
  View view(spec, x);
  numbers.push_back(view.a);
  numbers.push_back(places_like(view.kept));
}

Arrays few_places(
    const NormSpec& spec,
    const Arrays& inputs,
    int samples,
    mx::Stream s) {
  View view(spec, inputs[0]);
  int channels = view.a, inner = places_like(view.kept);
  Arrays few;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool parameter = inputs[i].ndim() == 1;
    auto shape = parameter ? mx::Shape{channels}
                           : mx::Shape{2, samples / 2, channels, inner};
    few.push_back(
        self_check::values(
            shape, inputs[i].dtype(), 17 * i + 1, /* large= */ false, s));
  }
  return few;
}

} // namespace mlx_norms
