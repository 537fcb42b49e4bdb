// Copyright © 2026 mlx_norms contributors
//
// The kernels' texts with their headers joined, written by kernels/join.py.

#pragma once

#include <vector>

namespace mlx_norms {

struct LibraryText {
  const char* name;
  const char* file;                 // ends in a hash of the text
  std::vector<const char*> kernels; // the families of their names
  const char* text;
};

const std::vector<LibraryText>& library_texts();

} // namespace mlx_norms
