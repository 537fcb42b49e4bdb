// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/launch_plan.h"

struct CUfunc_st;
struct CUgraph_st;

namespace mlx_norms::cuda {

// A graph of one launch whose threadgroups run in clusters. MLX updates the
// graphs it has instantiated with others of the same kinds of nodes, and an
// update leaves a launch's clusters as they were; only of graphs that are nodes
// themselves does it compare the clusters, too.
class ClusterGraph {
 public:
  // Throws KernelError if the driver refuses.
  ClusterGraph(const Launch& launch, CUfunc_st* function, void** arguments);
  ~ClusterGraph();
  ClusterGraph(const ClusterGraph&) = delete;
  ClusterGraph& operator=(const ClusterGraph&) = delete;

  CUgraph_st* get() const {
    return graph_;
  }

 private:
  CUgraph_st* graph_ = nullptr;
};

} // namespace mlx_norms::cuda
