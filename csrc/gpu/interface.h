// Copyright © 2026 mlx_norms contributors
//
// A kernel's arguments and constants, as launches set them. The names are read
// from the .metal files when the extension is built: kernels/interface.py
// writes kernels/interface.h, a structure of these per kernel.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mlx_norms {

// A function constant.
template <typename T>
struct Constant {
  int index;
};

// Arrays, by buffer index.
struct Input {
  int index;
};
struct Output {
  int index;
};

// What is taken by value, by its place among the launch's words of 32 bits,
// which are bound together at kWordsIndex.
template <typename T>
struct Scalar {
  int place;
};
struct Words { // six
  int place;
};

// An array's rows, which the function constant `flags` describes and a layout
// of those at the place `layouts` may find (kernels/common/rows.h).
struct Rows : Input {
  int flags;
  int layouts;
  int condition = -1; // the function constant that tells whether they are there
};
struct NamedRows {
  const char* name;
  Rows rows;
};
// Rows that are written, which are dense.
struct RowsWritten : Output {
  int flags;
};

// What a launch of a kernel must set.
struct KernelNeeds {
  static constexpr int kAlways = -1, kComputed = -2;
  enum class Kind { Flag, Number, Read, Written, Int, UInt, Float, Words };
  struct Name { // of an instantiation
    std::string text;
    int max_threads; // per threadgroup; 0: any
  };
  struct Argument {
    int index; // or place
    const char* name;
    Kind kind;
    int condition; // function constant it depends on, or one of those above
  };
  std::vector<Name> names;
  std::vector<Argument> constants;
  std::vector<Argument> arguments;
};

// What each kernel needs.
const std::vector<KernelNeeds>& kernel_needs();

} // namespace mlx_norms
