// Copyright © 2026 mlx_norms contributors
//
// The kernels as CUDA text, which kernels/to_cuda translates at build. Before
// it stand, from whoever compiles it, FC_<index> for each function constant,
// GROUP_SIZE, the threads of a group, and THREADS_PER_CORE, those that a core's
// registers are to have room for.

#pragma once

#include <span>
#include <vector>

namespace mlx_norms::cuda {

// Where the values for the Metal kernel's buffer indices stand among a launch's
// arguments, in bytes. They are two structures: pointers and scalars, and the
// layouts of rows.
struct Parameters {
  struct Place {
    int index;
    int offset;
  };
  std::span<const Place> places;
  int layouts; // where they begin
  int end;
};

// A function constant of the text.
struct Constant {
  int index;
  const char* name;
};

struct KernelText {
  const char* name; // as launches name it
  const char* text;
  const char* expression; // NVRTC's name expression of the kernel
  Parameters parameters;
  std::span<const Constant> constants;
};

const std::vector<KernelText>& kernel_texts();

// What NVRTC is told besides the architecture.
const std::vector<const char*>& compiler_options();

} // namespace mlx_norms::cuda
