// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/self_check.h"

#include "csrc/common/checks.h"
#include "csrc/common/self_check.h"

namespace mlx_norms {

namespace {

// The matmuls of each two neighbors in a list.
template <typename F>
Arrays products(const Arrays& pairs, F product) {
  Arrays all;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    all.push_back(product(pairs[i], pairs[i + 1]));
  }
  return all;
}

} // namespace

bool agrees(
    const char* kernel,
    bool gemv,
    mx::Dtype dtype,
    const KernelProduct& product,
    mx::Stream stream) {
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) {
          // Small and large tiles, whole and partial; for gemv, all kinds of
          // rows and vectors, and depths that several SIMD-groups share.
          std::vector<std::array<int, 3>> shapes = {
              {32, 32, 64}, {64, 128, 32}, {70, 67, 35}};
          if (gemv) {
            shapes = {{1, 40, 1100}, {2, 41, 104}, {4, 64, 520}, {7, 40, 35}};
          }
          Arrays pairs;
          for (const auto& [m, n, k] : shapes) {
            pairs.push_back(self_check::values({m, k}, dtype, m, false, s));
            pairs.push_back(self_check::values({k, n}, dtype, n, false, s));
            pairs.push_back(
                mx::transpose(
                    self_check::values({k, m}, dtype, m, false, s), s));
            pairs.push_back(
                mx::transpose(
                    self_check::values({n, k}, dtype, n, false, s), s));
          }
          return pairs;
        },
        [&](Arrays pairs, mx::Stream s) {
          return products(pairs, [&](const array& left, const array& right) {
            return product(left, right, s);
          });
        },
        [&](const Arrays& pairs, mx::Stream s) {
          return products(pairs, [&](const array& left, const array& right) {
            return mx::matmul(left, right, s);
          });
        },
        /* donates= */ false};
  };
  return self_check::agrees(
      {"product", {gemv, static_cast<int64_t>(dtype.val())}},
      stream.device,
      sample,
      [&] { return kernel + (" (" + text(dtype) + ")"); });
}

} // namespace mlx_norms
