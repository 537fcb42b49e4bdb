// Copyright © 2026 mlx_norms contributors
//
// Norms that a model writes in MLX's operations, read from the graph of one
// call.

#pragma once

#include <string>
#include <variant>

#include "csrc/patching/written_values.h"

namespace mlx_norms {

// What such code computes, as one of our norms does.
struct WrittenNorm {
  enum class Kind { Rms, Layer, L2 };
  Kind kind;
  int axis; // of x, not negative
  float eps;
  bool eps_bounds = false;   // of the root, as in NormSpec
  std::optional<int> weight; // which parameter
  float weight_offset = 0.0f;
  std::optional<int> bias;
  Rounding rounding = Rounding::Early;
  mx::Dtype dtype;
  float number = 1.0f;       // by which the result is multiplied
  std::optional<int> factor; // the same: which parameter, of another shape
  mx::Dtype output;          // the dtype of the product

  // The function of this package.
  const char* op() const;
};

// An array to call code on, in place of one like `x`: it has no value, so that
// code which evaluates it raises. In a trace it is traced, so that compiled
// functions are called as if they were not.
array stand_in(const array& x);

// What the pending `output` is as a norm of the stand-in `x`, of which nothing
// but `x`, the stand-ins `parameters` and constants are part; else why it is
// none, as the end of a sentence. Nothing is evaluated.
std::variant<WrittenNorm, std::string>
written_norm(const array& output, const array& x, const Arrays& parameters);

// The same of a value that has been read (written_reader.h).
std::variant<WrittenNorm, std::string> norm_of(
    const Value& value,
    const array& output,
    const array& x,
    const Arrays& parameters);

} // namespace mlx_norms
