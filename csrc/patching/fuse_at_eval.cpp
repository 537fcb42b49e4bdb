// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/fuse_at_eval.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/patching/fuse_projections.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/plan_around.h"
#include "csrc/patching/side_by_side.h"
#include "csrc/patching/take_products.h"
#include "mlx/mlx.h"

namespace mlx_norms {

namespace {

// Whether this process has a GPU whose kernels of products a pass could use.
bool has_gpu() {
  static const bool has = mx::is_available(mx::Device::gpu) ||
      has_gpu_kernels(mx::default_stream(mx::default_device()));
  return has;
}

constexpr size_t kMinNodes = 256; // looked for at first

bool fuse_around(PendingGraph& graph, const Arrays& roots, bool joins) {
  graph.note_holders();
  RewrittenGraph rewritten(roots, graph);
  plan_around(rewritten, joins);
  return rewritten.apply();
}

void join_side_by_side(PendingGraph& graph, const Arrays& roots) {
  graph.note_holders();
  RewrittenGraph rewritten(roots, graph);
  join_side_by_side(rewritten, {});
  rewritten.apply();
}

} // namespace

int fuse_at_eval(const Arrays& roots, bool around, bool projections) {
  // Steps are often alike.
  static thread_local size_t latest_nodes = kMinNodes;
  bool multiplies = projections && (has_gpu() || takes_products_anywhere());
  if (in_transform() || !(around || multiplies)) {
    return 0;
  }
  std::optional<PendingGraph> graph(std::in_place, roots, latest_nodes);
  latest_nodes = std::max(graph->size(), kMinNodes);
  if (around && may_plan_around(*graph) &&
      fuse_around(*graph, roots, /* joins= */ !multiplies) && multiplies) {
    graph.emplace(roots, latest_nodes); // as it is now
  }
  if (!multiplies) {
    return 0;
  }
  // Norms of products come before norms side by side.
  int fused = fuse_projections(*graph);
  int taken = take_products(*graph);
  count_projections(fused);
  count_products(taken);
  if (around) {
    if (fused + taken > 0) {
      graph.emplace(roots, latest_nodes);
    }
    if (may_stand_side_by_side(*graph)) {
      join_side_by_side(*graph, roots);
    }
  }
  return fused;
}

} // namespace mlx_norms
