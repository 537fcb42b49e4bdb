// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/fuse_graph.h"

#include "csrc/patching/plan_around.h"

namespace mlx_norms {

namespace {

constexpr size_t kNodes = 512; // about as many as a few layers have

} // namespace

Arrays fuse_graph(
    const Arrays& outputs,
    const std::function<Arrays()>& boundary) {
  PendingGraph whole(outputs, kNodes);
  if (!may_plan_around(whole)) {
    return outputs;
  }
  // What the function found elsewhere stays what it is: it may be a tracer of
  // an outer transform, which looks for it in the graph.
  whole.note_holders();
  auto leaves = whole.held();
  // What is given is asked for only now: it may be a model's parameters.
  auto given = boundary();
  leaves.insert(leaves.end(), given.begin(), given.end());
  PendingGraph graph(outputs, kNodes, leaves);
  RewrittenGraph rewritten(outputs, graph);
  plan_around(rewritten);
  return rewritten.build();
}

} // namespace mlx_norms
