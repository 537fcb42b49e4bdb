// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <atomic>

#include "csrc/common/backend.h"
#include "csrc/linear/norm_linear.h"
#include "csrc/linear/plan.h"
#include "csrc/patching/plans.h"

namespace mlx_norms {

namespace {

std::atomic<bool> products_anywhere = false;

// The array that the only user of `product` adds to it, and the sum; or nulls.
struct Added {
  const array* residual = nullptr;
  const array* sum = nullptr;
};

Added added_to(const array& product, const Graph& graph) {
  auto* sum = graph.only_taker(product);
  if (!sum || !is_pending(*sum, "Add") || sum->is_tracer() ||
      graph.rewrite_of(*sum) ||
      sum->primitive().stream() != product.primitive().stream()) {
    return {};
  }
  const auto& in = sum->inputs();
  // MLX has given both the sum's shape and dtype.
  return {in[0].id() == product.id() ? &in[1] : &in[0], sum};
}

bool take(const array& product, Graph& graph) {
  auto form = stored_form(product);
  const auto& in = product.inputs();
  auto stream = product.primitive().stream();
  if (!form || product.is_tracer() || graph.rewrite_of(product) ||
      !is_faster(*form, in[1], in[0].size() / in[0].shape(-1), stream) ||
      !std::all_of(in.begin() + 1, in.end(), is_readable) ||
      !graph.is_used(product)) {
    return false;
  }
  auto added = added_to(product, graph);
  QuantizedProduct ours(*form, in[0], added.residual, in[1], in[2], in[3]);
  NormLinear op(std::move(ours.spec), ours.inputs);
  auto made = made_of(shared(std::move(op)), std::move(ours.inputs), stream);
  const auto& output = added.sum ? *added.sum : product;
  return made &&
      graph.add({{output}, std::move(made->node), std::move(made->inputs)});
}

} // namespace

bool is_readable(const array& a) {
  return !is_pending(a) && !a.is_tracer() && a.flags().row_contiguous;
}

std::optional<Projection> stored_form(const array& product) {
  auto [group_size, bits, mode, transposed] =
      state_of<mx::QuantizedMatmul>(product);
  bool is_affine = mode == mx::QuantizationMode::Affine && transposed &&
      product.inputs().size() == 4;
  return is_affine ? std::optional(Projection{bits, group_size}) : std::nullopt;
}

bool is_faster(
    const Projection& form,
    const array& weight,
    int64_t rows,
    mx::Stream stream) {
  if (products_anywhere) {
    return true;
  }
  constexpr int64_t kMinElements = 1024 * 4096;
  auto elements = static_cast<int64_t>(weight.size()) * 32 / form.bits;
  int max_rows = form.bits == 4 ? 16 : 8;
  return elements >= kMinElements && rows <= max_rows &&
      has_gpu_kernels(stream) && multiplies_by_tiles(stream);
}

int plan_products(Graph& graph) {
  return std::ranges::count_if(graph.all(Kind::Product), [&](const array* a) {
    return take(*a, graph);
  });
}

bool takes_products_anywhere() {
  return products_anywhere;
}

void set_products_anywhere(bool anywhere) {
  products_anywhere = anywhere;
}

} // namespace mlx_norms
