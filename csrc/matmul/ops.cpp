// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/ops.h"

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/matmul/primitive.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "matmul";

const Rung& kernel_named(const std::string& name) {
  std::string names = "\"auto\"";
  for (auto* kernels : {&sgemm_rungs(), &product_kernels()}) {
    if (auto* kernel = find_rung(*kernels, name)) {
      return *kernel;
    }
    for (const auto& kernel : *kernels) {
      bool last = &kernel == &product_kernels().back();
      names += (last ? " or \"" : ", \"") + std::string(kernel.name) + '"';
    }
  }
  refuse(kOp, "kernel must be " + names + " but is \"" + name + "\".");
}

void check_operand(
    const Rung& kernel,
    const char* argument,
    const mx::array& operand) {
  if (!kernel.takes(operand.dtype())) {
    std::string names;
    for (auto dtype : kernel.dtypes) {
      names += (names.empty() ? "" : " or ") + text(dtype);
    }
    refuse(
        kOp,
        std::string(argument) + " must be " + names + " for kernel \"" +
            kernel.name + "\" but is " + text(operand.dtype()) + ".");
  }
}

} // namespace

mx::array matmul(
    const mx::array& a,
    const mx::array& b,
    const std::string& kernel,
    mx::StreamOrDevice stream_or_device) {
  auto stream = mx::to_stream(stream_or_device);
  if (kernel == "auto") {
    check_product(a, b, nullptr);
    bool ours = backend_of(stream) == Backend::Metal &&
        a.dtype() == b.dtype() && kernel_by_shape().takes(a.dtype());
    return ours ? product(kernel_by_shape(), a, b, stream)
                : mx::matmul(a, b, stream);
  }
  const auto& named = kernel_named(kernel);
  check_product(a, b, &named);
  check_operand(named, "a", a);
  check_operand(named, "b", b);
  if (a.dtype() != b.dtype()) {
    refuse(
        kOp,
        "a and b must be of one dtype for kernel \"" + kernel + "\" but are " +
            text(a.dtype()) + " and " + text(b.dtype()) + ".");
  }
  if (backend_of(stream) == Backend::Cpu) {
    refuse(
        kOp,
        "kernel \"" + kernel +
            "\" is a GPU kernel, and the stream is the CPU's.");
  }
  return product(named, a, b, stream);
}

} // namespace mlx_norms
