// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/ops.h"

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/matmul/matmul.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "matmul";

ProductKernel kernel_named(const std::string& name) {
  using enum ProductKernel;
  for (auto kernel : {ByShape, Blocked, Gemv}) {
    if (name == text(kernel)) {
      return kernel;
    }
  }
  refuse(
      kOp,
      "kernel must be \"auto\", \"simdgroup_blocked\" or \"gemv\" but is \"" +
          name + "\".");
}

void check_operand(
    const std::string& kernel,
    const char* argument,
    const mx::array& operand) {
  if (!takes_dtype(operand.dtype())) {
    refuse(
        kOp,
        std::string(argument) +
            " must be float32 or float16 or bfloat16 for kernel \"" + kernel +
            "\" but is " + text(operand.dtype()) + ".");
  }
}

} // namespace

mx::array matmul(const MatmulArguments& arguments) {
  const auto &a = *arguments.a, &b = *arguments.b;
  const auto& name = arguments.kernel;
  auto stream = mx::to_stream(arguments.stream);
  auto kernel = kernel_named(name);
  check_product(a, b, kernel);
  if (kernel == ProductKernel::ByShape) {
    bool ours = backend_of(stream) == Backend::Metal &&
        a.dtype() == b.dtype() && takes_dtype(a.dtype());
    return ours ? product(kernel, a, b, stream) : mx::matmul(a, b, stream);
  }
  check_operand(name, "a", a);
  check_operand(name, "b", b);
  if (a.dtype() != b.dtype()) {
    refuse(
        kOp,
        "a and b must be of one dtype for kernel \"" + name + "\" but are " +
            text(a.dtype()) + " and " + text(b.dtype()) + ".");
  }
  require_gpu_kernels(kOp, "kernel \"" + name + "\"", stream);
  return product(kernel, a, b, stream);
}

} // namespace mlx_norms
