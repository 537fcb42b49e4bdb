// Copyright © 2026 mlx_norms contributors
//
// A kernel of this build, launched by its name: what a new kernel is tried
// with before it has an op.

#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/gpu/launch_plan.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// A launch that does not depend on how its arrays lie in memory. It holds
// sizes, so a shapeless graph calls it for those of its trace alone.
struct Launched : OpOf<Launched> {
  Launch launch;                      // without arrays
  std::vector<int> read, written;     // buffer indices, in the arrays' order
  std::vector<mx::Shape> taken, made; // shapes of the inputs, of the outputs

  explicit Launched(Launch launch) : launch(std::move(launch)) {}

  bool operator==(const Launched& other) const;
  const char* name() const override {
    return "mlx_norms::Launch";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override {
    check(inputs);
    return made[i];
  }
  void check(const Arrays& inputs) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;

  // It throws: a kernel alone has no transforms.
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  bool has_sample() const override {
    return false;
  }
};

// A launch by the names of the kernel's text.
struct NamedLaunch {
  using Scalar = std::variant<int64_t, double, std::vector<int>>;
  template <typename T>
  using Named = std::vector<std::pair<std::string, T>>;

  std::string kernel;
  Named<std::variant<bool, int>> constants;
  Named<mx::array> inputs;
  Named<std::pair<mx::Shape, mx::Dtype>> outputs;
  Named<Scalar> scalars;
  std::array<int64_t, 3> groups; // threadgroups in the grid
  std::array<int64_t, 3> group;  // threads in each
};

// The outputs, of inputs that are made dense. Throws std::invalid_argument,
// which names the argument, if the kernel does not take what is given.
Arrays launch(const NamedLaunch& named, mx::StreamOrDevice stream);

} // namespace mlx_norms
