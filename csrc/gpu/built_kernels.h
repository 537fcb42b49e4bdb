// Copyright © 2026 mlx_norms contributors
//
// The extension's GPU kernels, for `python -m mlx_norms info --kernels`.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mlx_norms {

struct BuiltKernel {
  std::string name;
  std::map<int, std::string> constants; // function constants by their indices
  // The number of specializations on disk, for backends that keep them there.
  std::optional<int> on_disk;
};

// Kernels that share a text on Metal. CUDA's have one each.
struct BuiltLibrary {
  std::string name;
  bool from_metallib;  // else each kernel from text
  double seconds;      // build time
  std::string failure; // the compiler's messages
  bool usable;         // with all of its kernels
};

// A kernel compiled for one set of function constants, on Metal.
struct BuiltPipeline {
  std::string name;       // and index_value of each constant
  uint32_t max_threads;   // per threadgroup
  uint32_t static_memory; // per threadgroup, in bytes
  uint32_t group;         // threads of the first launch's threadgroups
};

// The usable kernels, by name; on Metal this builds those that are not built
// yet. Each backend defines these three functions.
std::vector<BuiltKernel> built_kernels();
std::vector<BuiltLibrary> built_libraries();
std::vector<BuiltPipeline> built_pipelines(); // that were launched so far

} // namespace mlx_norms
