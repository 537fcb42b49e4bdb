// Copyright © 2026 mlx_norms contributors

#include "csrc/common/checks.h"

#include <algorithm>

#include <cstdio>
#include <sstream>
#include <utility>

#include "csrc/common/backend.h"

namespace mlx_norms {

// Numbers are not written to a stream: that crashes if the toolchain gives the
// extension its own C++ runtime besides MLX's.
std::string text(float value) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%g", value);
  return digits;
}

std::string text(const mx::Shape& shape) {
  std::string sizes = "(";
  for (const char* before = ""; auto size : shape) {
    sizes += std::exchange(before, ",") + std::to_string(size);
  }
  return sizes + ")";
}

std::string text(mx::Dtype dtype) {
  std::ostringstream name;
  name << dtype;
  return name.str();
}

void refuse(const char* op, const std::string& message) {
  throw std::invalid_argument(std::string("[") + op + "] " + message);
}

bool takes_dtype(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

void check_dtype(const char* op, const char* argument, mx::Dtype dtype) {
  if (!takes_dtype(dtype)) {
    refuse(
        op,
        std::string(argument) +
            " must be float32, float16 or bfloat16 but is " + text(dtype) +
            ".");
  }
}

void check_rows(const char* op, const char* argument, const mx::array& x) {
  check_dtype(op, argument, x.dtype());
  if (x.ndim() == 0) {
    refuse(
        op, std::string(argument) + " must have at least 1 axis but has none.");
  }
}

void check_same_shape(
    const char* op,
    const char* argument,
    const mx::array& a,
    const mx::array& x) {
  check_dtype(op, argument, a.dtype());
  if (a.shape() != x.shape()) {
    refuse(
        op,
        std::string(argument) + " must have x's shape " + text(x.shape()) +
            " but has " + text(a.shape()) + ".");
  }
}

bool is_vector(const mx::array& a, int length) {
  return a.ndim() == 1 && a.shape(0) == length;
}

namespace {

bool is_matrix(const mx::array& a, int rows, int columns) {
  return a.ndim() == 2 && a.shape(0) == rows && a.shape(1) == columns;
}

} // namespace

Activation parse_activation(
    const char* op,
    const std::optional<std::string>& name,
    std::initializer_list<std::string_view> allowed) {
  if (!name) {
    return Activation::None;
  }
  constexpr std::pair<std::string_view, Activation> kActivations[] = {
      {"silu", Activation::Silu},
      {"sigmoid", Activation::Sigmoid},
      {"gelu", Activation::Gelu},
      {"relu2", Activation::Relu2}};
  std::string names;
  for (auto known : allowed) {
    auto* found = std::ranges::find(
        kActivations, known, &std::pair<std::string_view, Activation>::first);
    if (*name == known) {
      return found->second;
    }
    bool last = known == *(allowed.end() - 1);
    names += (names.empty() ? "\""
                  : last    ? " or \""
                            : ", \"") +
        std::string(known) + "\"";
  }
  refuse(op, "activation must be " + names + " but is \"" + *name + "\".");
}

void check_vector(
    const char* op,
    const char* argument,
    const mx::array& v,
    const mx::array& x) {
  check_dtype(op, argument, v.dtype());
  if (!is_vector(v, x.shape(-1))) {
    mx::Shape row{x.shape(-1)};
    refuse(
        op,
        std::string(argument) + " must have shape " + text(row) +
            ", the last axis of x, but has " + text(v.shape()) + ".");
  }
}

void check_broadcasts(
    const char* op,
    const char* argument,
    const mx::array& a,
    const mx::array& x) {
  check_dtype(op, argument, a.dtype());
  int missing = static_cast<int>(x.ndim()) - static_cast<int>(a.ndim());
  bool fits = missing >= 0 && a.ndim() > 0 && a.shape(-1) == x.shape(-1);
  for (int i = 0; fits && i < static_cast<int>(a.ndim()); ++i) {
    fits = a.shape(i) == 1 || a.shape(i) == x.shape(missing + i);
  }
  if (fits) {
    return;
  }
  std::string hint;
  if (a.ndim() == 2 && missing > 0 && a.shape(0) == x.shape(0)) {
    mx::Shape of_samples(x.ndim(), 1);
    of_samples.front() = x.shape(0);
    of_samples.back() = x.shape(-1);
    hint = " One for each sample has shape " + text(of_samples) + ".";
  }
  refuse(
      op,
      std::string(argument) + " must broadcast to x's shape " +
          text(x.shape()) + " and have its last axis, but has shape " +
          text(a.shape()) + "." + hint);
}

void check_one_element(
    const char* op,
    const char* argument,
    const mx::array& a) {
  check_dtype(op, argument, a.dtype());
  if (a.size() != 1) {
    refuse(
        op,
        std::string(argument) + " must have one element but has shape " +
            text(a.shape()) + ".");
  }
}

void check_head_weight(
    const char* op,
    const char* argument,
    const mx::array& weight,
    const char* x_name,
    const mx::array& x) {
  check_dtype(op, argument, weight.dtype());
  int length = x.shape(-1);
  bool has_heads = x.ndim() > 1;
  if (!is_vector(weight, length) &&
      !(has_heads && is_matrix(weight, x.shape(-2), length))) {
    auto fits = text(mx::Shape{length});
    if (has_heads) {
      fits += " or " + text(mx::Shape{x.shape(-2), length});
    }
    refuse(
        op,
        std::string(argument) + " must have shape " + fits +
            ", the last axes of " + x_name + ", but has " +
            text(weight.shape()) + ".");
  }
}

void require_gpu_kernels(
    const char* op,
    const std::string& what,
    mx::Stream stream) {
  switch (backend_of(stream)) {
    case Backend::Cpu:
      refuse(op, what + " is a GPU kernel, and the stream is the CPU's.");
    case Backend::None:
      refuse(
          op,
          what + " is a GPU kernel, which on CUDA needs MLX 0.32.4 or newer.");
    default:
      break;
  }
}

} // namespace mlx_norms
