// Copyright © 2026 mlx_norms contributors
//
// What GPU kernels the extension has, for `python -m mlx_norms info --kernels`.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mlx_norms {

struct BuiltKernel {
  std::string name;
  std::map<int, std::string> constants; // function constants by their indices
  // Specializations whose machine code is on disk, where it is kept there.
  std::optional<int> on_disk;
};

// What Metal compiles together; CUDA's kernels are compiled one by one.
struct BuiltLibrary {
  std::string name;
  bool from_metallib;  // else from text
  double seconds;      // that it took
  std::string failure; // what the compiler says of what it refused
  bool usable;
};

// A kernel compiled for some function constants, on Metal.
struct BuiltPipeline {
  std::string name;       // and index_value of each constant
  uint32_t most_threads;  // that a threadgroup may have
  uint32_t static_memory; // of a threadgroup, in bytes
};

// Those of usable libraries, by name; on Metal this builds what is not built
// yet. Each backend defines these three.
std::vector<BuiltKernel> built_kernels();
std::vector<BuiltLibrary> built_libraries();
std::vector<BuiltPipeline> built_pipelines(); // that were launched so far

} // namespace mlx_norms
