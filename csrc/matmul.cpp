// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul.h"

#include "csrc/backend.h"
#include "csrc/checks.h"
#include "csrc/ladders/matmul_rung.h"
#include "csrc/ladders/rung.h"

namespace mlx_norms {

namespace {

constexpr const char* kOp = "matmul";

const Rung& rung_named(const std::string& kernel) {
  const auto& rungs = sgemm_rungs();
  if (auto* rung = find_rung(rungs, kernel)) {
    return *rung;
  }
  std::string names = "\"auto\"";
  for (size_t i = 0; i < rungs.size(); ++i) {
    names += (i + 1 < rungs.size() ? ", \"" : " or \"") +
        std::string(rungs[i].name) + '"';
  }
  refuse(kOp, "kernel must be " + names + " but is \"" + kernel + "\".");
}

void check_operand(
    const Rung& rung,
    const char* argument,
    const mx::array& operand) {
  if (operand.dtype() != rung.dtypes.at(0)) {
    refuse(
        kOp,
        std::string(argument) + " must be " + text(rung.dtypes.at(0)) +
            " for kernel \"" + rung.name + "\" but is " +
            text(operand.dtype()) + ".");
  }
}

} // namespace

mx::array matmul(
    const mx::array& a,
    const mx::array& b,
    const std::string& kernel,
    mx::StreamOrDevice stream_or_device) {
  auto stream = mx::to_stream(stream_or_device);
  check_product(a, b);
  if (kernel == "auto") {
    return mx::matmul(a, b, stream);
  }
  const auto& rung = rung_named(kernel);
  check_operand(rung, "a", a);
  check_operand(rung, "b", b);
  if (backend_of(stream) == Backend::Cpu) {
    refuse(
        kOp,
        "kernel \"" + kernel +
            "\" is a rung of the ladder: these are GPU kernels, and the stream "
            "is the CPU's.");
  }
  return matmul_rung(rung, a, b, stream);
}

} // namespace mlx_norms
