// Copyright © 2026 mlx_norms contributors
//
// The kernels as CUDA text, translated by kernels/to_cuda at build time.
// Whoever compiles it defines, in front of it, FC_<index> for each function
// constant, GROUP_SIZE, the threads per threadgroup, and THREADS_PER_CORE, for
// which a core's registers must suffice.

#pragma once

#include <span>
#include <vector>

namespace mlx_norms::cuda {

// The offsets in bytes among a launch's arguments, which are two structures:
// pointers, by the Metal kernel's buffer indices, and the launch's words up to
// its layouts; and these.
struct Parameters {
  struct Place {
    int index;
    int offset;
  };
  std::span<const Place> pointers;
  int words;
  int layouts;
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

// NVRTC's options besides the architecture.
const std::vector<const char*>& compiler_options();

} // namespace mlx_norms::cuda
