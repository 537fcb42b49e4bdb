// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/self_check.h"

#include "csrc/common/checks.h"
#include "csrc/common/self_check.h"
#include "csrc/matmul/plan.h"

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

array stored_by_columns(const array& a, mx::Stream s) {
  return mx::transpose(mx::contiguous(mx::transpose(a, s), false, s), s);
}

// Few products by the kernels of these sizes, and numbers that tell the kernels
// apart. Whether lines are aligned for vectors depends on each size.
struct Few {
  std::vector<int64_t> key;
  std::vector<std::array<int, 3>> shapes; // rows, columns, depth
};

// Depths that one and several SIMD-groups have.
Few few_by_gemv(const ProductSizes& sizes) {
  int rows = sizes.rows;
  bool aligned = sizes.depth % 8 == 0, columns_aligned = sizes.columns % 8 == 0;
  int columns = columns_aligned ? 40 : 41;
  return {
      {1, rows, aligned, columns_aligned},
      {{rows, columns, aligned ? 104 : 35},
       {rows, columns, aligned ? 1104 : 1100}}};
}

// Whole tiles, or partial ones.
Few few_by_tiles(const ProductSizes& sizes) {
  auto [rows, columns, depth] = sizes;
  int tile = blocked_tile(rows, columns);
  bool whole = rows % tile == 0 && columns % tile == 0 &&
      depth % blocked_depth(tile) == 0;
  if (whole) {
    return {{0, tile}, {{tile, 2 * tile, 2 * blocked_depth(tile)}}};
  }
  auto like = [](int64_t size, int few) {
    return size % 4 == 0 ? few : few + 1;
  };
  return {
      {0, tile, rows % 4 == 0, columns % 4 == 0, depth % 4 == 0},
      {{like(rows, tile == 32 ? 12 : 72), like(columns, 68), like(depth, 36)}}};
}

} // namespace

bool agrees(
    const char* kernel,
    bool gemv,
    const ProductSizes& sizes,
    mx::Dtype dtype,
    const KernelProduct& product,
    mx::Stream stream) {
  auto few = gemv ? few_by_gemv(sizes) : few_by_tiles(sizes);
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) {
          Arrays pairs;
          for (const auto& [m, n, k] : few.shapes) {
            auto a = self_check::values({m, k}, dtype, m, false, s);
            auto b = self_check::values({k, n}, dtype, n, false, s);
            for (const auto& left : {a, stored_by_columns(a, s)}) {
              for (const auto& right : {b, stored_by_columns(b, s)}) {
                pairs.insert(pairs.end(), {left, right});
              }
            }
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
  few.key.push_back(static_cast<int64_t>(dtype.val()));
  return self_check::agrees({"product", few.key}, stream.device, sample, [&] {
    return kernel + (" (" + text(dtype) + ")");
  });
}

} // namespace mlx_norms
