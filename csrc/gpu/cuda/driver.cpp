// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/cuda/driver.h"

#include <dlfcn.h>

#include <initializer_list>

#include "csrc/common/kernel_error.h"

namespace mlx_norms::cuda {

namespace {

// A shared library, by the first of these names that is found.
class Library {
 public:
  Library(const char* what, std::initializer_list<const char*> names)
      : what_(what) {
    for (auto* name : names) {
      handle_ = handle_ ? handle_ : dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    }
    if (!handle_) {
      throw KernelError("[mlx_norms] " + what_ + " is not loaded.");
    }
  }

  template <typename F>
  void find(F& function, const char* name) const {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (!function) {
      throw KernelError("[mlx_norms] " + what_ + " has no " + name + ".");
    }
  }

 private:
  std::string what_;
  void* handle_ = nullptr;
};

Driver load_driver() {
  Library library("NVIDIA's driver", {"libcuda.so.1"});
  Driver d;
  library.find(d.module_load_data, "cuModuleLoadData");
  library.find(d.module_get_function, "cuModuleGetFunction");
  library.find(d.func_set_attribute, "cuFuncSetAttribute");
  library.find(d.device_get_attribute, "cuDeviceGetAttribute");
  library.find(d.get_error_name, "cuGetErrorName");
  library.find(d.graph_create, "cuGraphCreate");
  library.find(d.graph_destroy, "cuGraphDestroy");
  library.find(d.graph_add_kernel_node, "cuGraphAddKernelNode_v2");
  library.find(d.graph_node_set_attribute, "cuGraphKernelNodeSetAttribute");
  return d;
}

Compiler load_compiler() {
  Library library(
      "NVIDIA's run-time compiler", {"libnvrtc.so.13", "libnvrtc.so.12"});
  Compiler c;
  library.find(c.create_program, "nvrtcCreateProgram");
  library.find(c.destroy_program, "nvrtcDestroyProgram");
  library.find(c.add_name_expression, "nvrtcAddNameExpression");
  library.find(c.compile_program, "nvrtcCompileProgram");
  library.find(c.get_lowered_name, "nvrtcGetLoweredName");
  library.find(c.get_log_size, "nvrtcGetProgramLogSize");
  library.find(c.get_log, "nvrtcGetProgramLog");
  library.find(c.get_cubin_size, "nvrtcGetCUBINSize");
  library.find(c.get_cubin, "nvrtcGetCUBIN");
  library.find(c.get_error_string, "nvrtcGetErrorString");
  library.find(c.version, "nvrtcVersion");
  return c;
}

} // namespace

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

const Compiler& compiler() {
  static const Compiler loaded = load_compiler();
  return loaded;
}

void check_driver(int result, const std::string& what) {
  if (result != 0) {
    const char* name = nullptr;
    driver().get_error_name(result, &name);
    throw KernelError(
        "[mlx_norms] " + what +
        " failed: " + (name ? name : std::to_string(result)) + ".");
  }
}

void check_compiler(int result, const std::string& what) {
  if (result != 0) {
    throw KernelError(
        "[mlx_norms] " + what +
        " failed: " + compiler().get_error_string(result) + ".");
  }
}

namespace {

int attribute(int which, int device) {
  int value = 0;
  check_driver(
      driver().device_get_attribute(&value, which, device),
      "Asking for an attribute of the GPU");
  return value;
}

} // namespace

int compute_capability(int device) {
  constexpr int kMajor = 75, kMinor = 76; // CU_DEVICE_ATTRIBUTE_...
  return 10 * attribute(kMajor, device) + attribute(kMinor, device);
}

DeviceLimits limits_of(int device) {
  constexpr int kProcessors = 16, kSharedMemory = 97; // CU_DEVICE_ATTRIBUTE_...
  // With 128 registers per thread.
  constexpr int kSimdsPerProcessor = 16;
  constexpr int kCluster = 4; // runs on any device
  // Threadgroup memory that kernels declare: the SIMD-groups' partial sums.
  constexpr int kOwn = 1024;
  thread_local int known = -1;
  thread_local DeviceLimits limits;
  if (device != known) {
    int processors = attribute(kProcessors, device);
    int capability = compute_capability(device);
    limits = {
        attribute(kSharedMemory, device) - kOwn,
        processors,
        kSimdsPerProcessor,
        32 * kSimdsPerProcessor * processors,
        capability >= 90 ? kCluster : 1,
        capability >= 80};
    known = device;
  }
  return limits;
}

} // namespace mlx_norms::cuda
