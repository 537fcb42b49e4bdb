// Copyright © 2026 mlx_norms contributors
//
// What a kernel takes, in terms that its launch is filled in by. The names are
// read from the .metal files when the extension is built: kernels/interface.py
// writes kernels/interface.h, a structure of these for each kernel.

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

// Arguments, by their buffers.
struct Input {
  int index;
};
struct Output {
  int index;
};
template <typename T>
struct Scalar {
  int index;
};
struct Words { // six of 32 bits
  int index;
};

// What a launch of a kernel must give.
struct KernelNeeds {
  struct Argument {
    int index;
    const char* name;
    int condition; // a function constant without which it is none; -1: always
  };
  std::vector<std::string> names; // of its instantiations
  std::vector<Argument> constants;
  std::vector<Argument> arguments;
};

// Of all kernels; those whose conditions are computed have no argument here.
const std::vector<KernelNeeds>& kernel_needs();

struct Launch;

// Throws KernelError where the launch leaves out what its kernel needs.
void check_complete(const Launch& launch);

} // namespace mlx_norms
