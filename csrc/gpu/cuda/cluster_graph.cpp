// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/cuda/cluster_graph.h"

#include "csrc/gpu/cuda/driver.h"

namespace mlx_norms::cuda {

ClusterGraph::ClusterGraph(
    const Launch& launch,
    CUfunc_st* function,
    void** arguments) {
  constexpr int kClusterDimension = 4; // CU_LAUNCH_ATTRIBUTE_...
  auto what = "A graph with kernel " + launch.kernel.text();
  check_driver(driver().graph_create(&graph_, 0), what);
  const auto& [groups_x, groups_y, groups_z] = launch.groups;
  const auto& [x, y, z] = launch.group;
  KernelNode node{
      .function = function,
      .groups = {groups_x, groups_y, groups_z},
      .group = {x, y, z},
      .shared_bytes = launch.staged_bytes,
      .arguments = arguments};
  LaunchAttribute cluster{.numbers = {launch.cluster, 1, 1}};
  CUgraphNode_st* added;
  int result =
      driver().graph_add_kernel_node(&added, graph_, nullptr, 0, &node);
  if (result == 0) {
    result =
        driver().graph_node_set_attribute(added, kClusterDimension, &cluster);
  }
  if (result != 0) {
    driver().graph_destroy(graph_);
    check_driver(result, what);
  }
}

ClusterGraph::~ClusterGraph() {
  driver().graph_destroy(graph_);
}

} // namespace mlx_norms::cuda
