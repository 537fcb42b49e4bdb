// Copyright © 2026 mlx_norms contributors
//
// What the ops refuse, by std::invalid_argument, a ValueError in Python. Its
// text names the op, the argument and what was expected.

#pragma once

#include "csrc/common/activation.h"
#include "csrc/common/types.h"
#include "mlx/mlx.h"

namespace mlx_norms {

// float32, float16 or bfloat16.
bool takes_dtype(mx::Dtype dtype);
void check_dtype(const char* op, const char* argument, mx::Dtype dtype);

// At least one axis.
void check_rows(const char* op, const char* argument, const mx::array& x);

void check_same_shape(
    const char* op,
    const char* argument,
    const mx::array& a,
    const mx::array& x);

// [length]
bool is_vector(const mx::array& a, int length);

// [D], with D the last axis of x.
void check_vector(
    const char* op,
    const char* argument,
    const mx::array& v,
    const mx::array& x);

// [head_dim] or [heads, head_dim] of x.
void check_head_weight(
    const char* op,
    const char* argument,
    const mx::array& weight,
    const char* x_name,
    const mx::array& x);

// Broadcasts to x's shape, along its last axis without being broadcast.
void check_broadcasts(
    const char* op,
    const char* argument,
    const mx::array& a,
    const mx::array& x);

void check_one_element(
    const char* op,
    const char* argument,
    const mx::array& a);

// The activation of this name, if it is one of those allowed, by default any;
// none: None.
Activation parse_activation(
    const char* op,
    const std::optional<std::string>& name,
    std::initializer_list<std::string_view> allowed =
        {"silu", "sigmoid", "gelu", "relu2"});

[[noreturn]] void refuse(const char* op, const std::string& message);

// Refuses `what`, as in "rung \"simd\"", on a stream that no GPU kernel runs
// on.
void require_gpu_kernels(
    const char* op,
    const std::string& what,
    mx::Stream stream);

// Values in messages.
std::string text(mx::Dtype dtype);
std::string text(const mx::Shape& shape);
std::string text(float value);

} // namespace mlx_norms
