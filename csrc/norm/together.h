// Copyright © 2026 mlx_norms contributors
//
// RMSNorms of several tensors in one launch.

#pragma once

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/norm/spec.h"

namespace mlx_norms {

struct NormedTensor {
  NormSpec spec;
  NormInputs in;
  const array& out;
  Geometry geometry;

  int length() const {
    return in.x().shape(-1);
  }
};

// Tensors whose rows share an instance of the kernel, in which each row has the
// threads of its own geometry: joining changes no bits.
struct NormsTogether {
  std::vector<NormedTensor> tensors;
  Geometry geometry;  // of the instance
  bool mixed = false; // there are several lengths

  explicit NormsTogether(const NormedTensor& first)
      : tensors{first},
        geometry(first.geometry) {}

  // Whether it could be added.
  bool add(const NormedTensor& tensor, Backend backend);
  // Adds the launch: of several, or of one with a multiplier.
  void plan(LaunchPlan& plan) const;
};

} // namespace mlx_norms
