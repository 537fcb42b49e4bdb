// Copyright © 2026 mlx_norms contributors
//
// The kernels' texts with their headers joined, written by kernels/join.py.

#pragma once

#include <vector>

namespace mlx_norms {

struct KernelText {
  const char* name;
  // What the library's text lacks of it: a line, or nothing if it lacks
  // nothing.
  const char* instantiation;
};

struct LibraryText {
  const char* name;
  const char* file; // ends in a hash of the text
  std::vector<KernelText> kernels;
  const char* text;
};

const std::vector<LibraryText>& library_texts();

} // namespace mlx_norms
