// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/fuse_at_eval.h"

#include "csrc/common/backend.h"
#include "csrc/patching/fuse_projections.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/plan_around.h"
#include "csrc/patching/take_products.h"
#include "csrc/patching/vain_passes.h"
#include "mlx/mlx.h"

namespace mlx_norms {

namespace {

// Whether this process has a GPU whose kernels of products a pass could use.
bool has_gpu() {
  static const bool has = mx::is_available(mx::Device::gpu) ||
      has_gpu_kernels(mx::default_stream(mx::default_device()));
  return has;
}

// Returns whether anything was fused.
bool fuse_around(PendingGraph& graph, const Arrays& roots, bool written) {
  graph.note_holders();
  RewrittenGraph rewritten(roots, graph);
  plan_around(rewritten, written);
  return rewritten.apply();
}

} // namespace

int fuse_at_eval(const Arrays& roots, bool around, bool written) {
  static thread_local VainPasses vain;
  bool multiplies = has_gpu() || takes_products_anywhere();
  if (!vain.looks_now() || !(around || multiplies)) {
    return 0;
  }
  std::optional<PendingGraph> graph(std::in_place, roots, vain.nodes());
  auto nodes = graph->size();
  // What a transform traces is left to the transform's own pass.
  bool may_be_around =
      around && !in_transform() && may_plan_around(*graph, written);
  int fused = 0, taken = 0;
  if (multiplies) {
    fused = fuse_projections(*graph);
    taken = take_products(*graph);
    count_projections(fused);
    count_products(taken);
  }
  bool found = fused + taken > 0;
  if (may_be_around) {
    if (found) {
      graph.emplace(roots, nodes); // as it is now
    }
    found |= fuse_around(*graph, roots, written);
  }
  vain.found(found, nodes);
  return fused;
}

} // namespace mlx_norms
