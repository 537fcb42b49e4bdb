// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/pass.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/patching/plans.h"
#include "csrc/patching/report.h"
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
constexpr size_t kNodes = 512;    // about as many as a few layers have

} // namespace

int fuse_at_eval(const Arrays& roots, bool around, bool projections) {
  // Steps are often alike.
  static thread_local size_t latest_nodes = kMinNodes;
  bool multiplies = projections && (has_gpu() || takes_products_anywhere());
  if (in_transform() || !(around || multiplies)) {
    return 0;
  }
  std::optional<Graph> graph(std::in_place, roots, latest_nodes);
  latest_nodes = std::max(graph->size(), kMinNodes);
  // Norms of products come before norms side by side.
  auto prospects = around ? prospects_of(*graph) : Prospects{};
  if (prospects.any) {
    if (prospects.holders) {
      graph->note_holders();
    }
    plan_around(*graph, prospects, /* joins= */ !multiplies);
    if (graph->apply() && multiplies) {
      graph.emplace(roots, latest_nodes); // as it is now
    }
  }
  if (!multiplies) {
    return 0;
  }
  int fused = plan_projections(*graph);
  count(Counted::Projections, fused);
  count(Counted::Products, plan_products(*graph));
  if (graph->apply() && around) {
    graph.emplace(roots, latest_nodes);
  }
  if (around && may_stand_side_by_side(*graph)) {
    graph->note_holders();
    plan_side_by_side(*graph, {});
    graph->apply();
  }
  return fused;
}

Arrays fuse_graph(
    const Arrays& outputs,
    const std::function<Arrays()>& boundary) {
  Graph whole(outputs, kNodes);
  if (!prospects_of(whole).any) {
    return outputs;
  }
  // What the function found elsewhere stays what it is: it may be a tracer of
  // an outer transform, which looks for it in the graph.
  whole.note_holders();
  auto leaves = whole.held();
  // What is given is asked for only now: it may be a model's parameters.
  auto given = boundary();
  leaves.insert(leaves.end(), given.begin(), given.end());
  Graph graph(outputs, kNodes, leaves);
  plan_around(graph, prospects_of(graph));
  return rebuilt(graph);
}

} // namespace mlx_norms
