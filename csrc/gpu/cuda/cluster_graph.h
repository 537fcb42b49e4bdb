// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/launch_plan.h"

struct CUfunc_st;
struct CUgraph_st;

namespace mlx_norms::cuda {

// A graph of one launch whose threadgroups run in clusters. MLX updates
// instantiated graphs with others of the same kinds of nodes, and an update
// does not change a launch's clusters. Only for nodes that are graphs
// themselves are clusters compared, too.
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
