// Copyright © 2026 mlx_norms contributors

#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hostmetal {

struct Launch;
struct Library;
struct Pipeline;

// Indices of the function constants that each kernel needs, by their names.
using Kernels = std::map<std::string, std::map<std::string, int>>;

// What the simulator does for the device. The first five may throw,
// which refuses what the plugin was doing.
struct Handlers {
  // What is in a library.
  std::function<Kernels(const Library&)> kernels;
  // Checks a new pipeline's kernel and constants.
  std::function<void(const Pipeline&)> pipeline;
  // A pipeline's maxTotalThreadsPerThreadgroup.
  std::function<size_t(const Pipeline&)> thread_limit;
  // The bytes of threadgroup memory that a pipeline's kernel declares.
  std::function<size_t(const Pipeline&)> static_memory;
  // Checks a launch; returns the indices of the buffers that it writes.
  std::function<std::vector<int>(const Launch&)> encode;
  // Runs a launch, on the thread of its stream.
  std::function<void(const Launch&)> run;
  // Takes a fault, which is one sentence.
  std::function<void(const std::string&)> fault;
};

// Throws as long as there are none.
const Handlers& handlers();
void set_handlers(Handlers handlers);

// Records a fault and throws it: what Metal or MLX would punish is not encoded.
[[noreturn]] void refuse(const std::string& what);

} // namespace hostmetal
