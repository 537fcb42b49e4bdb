// Copyright © 2026 mlx_norms contributors

#include "hazards.h"

#include "handlers.h"

namespace hostmetal {

namespace {

// max_ops_per_buffer_ of the largest GPUs. Fences order what comes after.
constexpr size_t kLaunchesPerEncoder = 50;

} // namespace

bool Hazards::Access::overlaps(const Access& other) const {
  return address == other.address && begin < other.end && other.begin < end;
}

void Hazards::add(
    const Launch& launch,
    const std::set<int>& written,
    const std::set<int>& declared,
    size_t concurrent) {
  Recent now{launch.pipeline->kernel, concurrent, {}};
  for (auto& [index, bound] : launch.bindings) {
    if (bound.kind != BindingKind::Bytes) {
      now.accesses[index] = {
          bound.address,
          bound.is_array() ? bound.begin : bound.offset,
          bound.end,
          bound.owner,
          written.contains(index),
          bound.is_array(),
          declared.contains(index)};
    }
  }
  for (auto& earlier : recent_) {
    bool together = concurrent != 0 && earlier.concurrent == concurrent;
    for (auto& [_, before] : earlier.accesses) {
      if (before.owner.expired()) {
        continue; // something else has its place by now
      }
      for (auto& [index, access] : now.accesses) {
        if (!(before.written || access.written) || !before.overlaps(access)) {
          continue;
        }
        bool ordered = !together &&
            ((before.output && access.input) ||
             (before.input && access.output));
        if (!ordered) {
          refuse(
              now.kernel + ": buffer " + std::to_string(index) + " is " +
              (before.written ? "written" : "read") +
              " by an earlier launch (" + earlier.kernel +
              ") for which it does not wait, " +
              (together ? "as both are in one concurrent context"
                        : "as MLX was not told of it as input and output"));
        }
      }
    }
  }
  recent_.push_back(std::move(now));
}

void Hazards::end_if_full() {
  if (recent_.size() > kLaunchesPerEncoder) {
    recent_.clear();
  }
}

} // namespace hostmetal
