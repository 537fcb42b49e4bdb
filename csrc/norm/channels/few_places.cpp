// Copyright © 2026 mlx_norms contributors

#include "csrc/common/self_check.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/channels/geometry.h"

namespace mlx_norms {

void append_columns(const array& x, int axis, std::vector<int64_t>& numbers) {
  numbers.push_back(x.shape(axis));
  numbers.push_back(places_like(inner_size(x, axis)));
}

Arrays few_places(const Arrays& inputs, int axis, int samples, mx::Stream s) {
  int channels = inputs[0].shape(axis);
  int inner = places_like(inner_size(inputs[0], axis));
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
