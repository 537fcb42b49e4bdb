// Copyright © 2026 mlx_norms contributors
//
// The functions of NVIDIA's driver and run-time compiler that build and load
// kernels. MLX's CUDA library has loaded both, so no header or library of CUDA
// is needed here.

#pragma once

#include <cstddef>
#include <string>

#include "csrc/gpu/launch_plan.h"

struct CUctx_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUkern_st;
struct CUmod_st;
struct _nvrtcProgram;

namespace mlx_norms::cuda {

using Program = _nvrtcProgram*;

struct KernelNode { // CUDA_KERNEL_NODE_PARAMS
  CUfunc_st* function;
  uint32_t groups[3];
  uint32_t group[3];
  uint32_t shared_bytes;
  void** arguments;
  void** extra = nullptr;
  CUkern_st* kernel = nullptr;
  CUctx_st* context = nullptr;
};

union LaunchAttribute { // CUlaunchAttributeValue
  char bytes[64];
  uint32_t numbers[3];
};

struct Driver {
  int (*module_load_data)(CUmod_st**, const void* image);
  int (*module_get_function)(CUfunc_st**, CUmod_st*, const char* symbol);
  int (*func_set_attribute)(CUfunc_st*, int attribute, int value);
  int (*device_get_attribute)(int* value, int attribute, int device);
  int (*get_error_name)(int error, const char** name);
  int (*graph_create)(CUgraph_st**, unsigned flags);
  int (*graph_destroy)(CUgraph_st*);
  int (*graph_add_kernel_node)(
      CUgraphNode_st**,
      CUgraph_st*,
      CUgraphNode_st* const* dependencies,
      size_t n_dependencies,
      const KernelNode*);
  int (*graph_node_set_attribute)(
      CUgraphNode_st*,
      int attribute,
      const LaunchAttribute*);
};

struct Compiler {
  int (*create_program)(
      Program*,
      const char* source,
      const char* name,
      int n_headers,
      const char* const* headers,
      const char* const* include_names);
  int (*destroy_program)(Program*);
  int (*add_name_expression)(Program, const char*);
  int (*compile_program)(Program, int n_options, const char* const* options);
  int (*get_lowered_name)(Program, const char* expression, const char** name);
  int (*get_log_size)(Program, size_t*);
  int (*get_log)(Program, char*);
  int (*get_cubin_size)(Program, size_t*);
  int (*get_cubin)(Program, char*);
  const char* (*get_error_string)(int);
  int (*version)(int* major, int* minor);
};

// Throw KernelError if a library or one of its functions is missing.
const Driver& driver();
const Compiler& compiler();

// Throw KernelError with `what` and the error, if the result is one.
void check_driver(int result, const std::string& what);
void check_compiler(int result, const std::string& what);

// 90 for compute capability 9.0.
int compute_capability(int device);

DeviceLimits limits_of(int device);

} // namespace mlx_norms::cuda
