// Copyright © 2026 mlx_norms contributors

// How the extension finds its libraries of kernels, by itself.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "csrc/gpu/metal/library.h"

NB_MODULE(_libraries, m) {
  m.def("load", [] {
    std::vector<std::tuple<std::string, bool, bool, std::string>> all;
    for (const auto& built : mlx_norms::kernel_libraries()) {
      all.emplace_back(
          built.name, built.is_usable(), built.from_metallib, built.failure);
    }
    return all;
  });
}
