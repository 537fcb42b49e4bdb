// Copyright © 2026 mlx_norms contributors

#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch.h"

namespace hostmetal {

// The order in which one encoder's launches run (fences.h: several encoders').
// Metal runs them concurrently but for barriers, which MLX inserts by what it
// was told of inputs and outputs.
class Hazards {
 public:
  // Adds a launch that writes these buffer indices and of which MLX was told
  // `declared` as outputs. Refuses it if MLX would not make it wait for an
  // earlier one that writes what it uses, or uses what it writes. `concurrent`
  // numbers the start_concurrent() that it is in; 0 is none.
  void add(
      const Launch& launch,
      const std::set<int>& written,
      const std::set<int>& declared,
      size_t concurrent);

  // After an eval_gpu: MLX ends an encoder that has had many launches.
  void end_if_full();

  // Everything later waits for everything before.
  void barrier() {
    recent_.clear();
  }

 private:
  struct Access {
    const char* address;
    size_t begin;
    size_t end;
    std::weak_ptr<mx::array::Data> owner;
    bool written;
    // What MLX looks at: whether the buffer is among a launch's inputs, as
    // every array bound is, and among its outputs.
    bool input;
    bool output;

    bool overlaps(const Access& other) const;
  };

  struct Recent {
    std::string kernel;
    size_t concurrent;
    std::map<int, Access> accesses;
  };

  std::vector<Recent> recent_;
};

} // namespace hostmetal
