// Copyright © 2026 mlx_norms contributors
//
// norm_rope and qk_norm_rope: RMSNorm of each head, and a rotary embedding.

#pragma once

#include <algorithm>
#include <optional>

#include "csrc/gpu/launch_plan.h"
#include "csrc/norm/spec.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// Inputs: x, or q and k, each with its weight if there is one; v, which is not
// rotated; the offset, in int32; the frequencies. Tensors are [..., L, H, D] of
// one dtype. The offset has one element, or one for each index of the leading
// axes or for so many that adjoin.
struct NormRope : OpOf<NormRope> {
  int rotated = 1; // tensors
  bool has_v = false;
  bool has_freqs = false;
  bool normalized = true; // else x is only rotated
  bool rope_first = false;
  bool head_major = true; // the results are [..., H, L, D]
  bool traditional = false;
  std::optional<int> dims; // none: all of D
  Number base = 10000.0f;
  Number scale = 1.0f; // of positions
  NormSpec norm; // of each tensor; the multiplier is the first one's alone

  bool operator==(const NormRope&) const = default;
  const char* name() const override {
    return normalized ? "mlx_norms::NormRope" : "mlx_norms::Rope";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  void check(const Arrays& inputs) const override;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s)
      const override;

  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const override;
  OpPtr sampled(const Arrays& inputs, mx::Stream s) const override;
  Arrays sample(const Arrays& inputs, mx::Stream s) const override;
  Arrays reference(const Arrays& sample, mx::Stream s) const override;

  // Whether a GPU's SIMD-group holds a row.
  bool suits(const Arrays& inputs, mx::Stream s) const override;
  Arrays steps(const Arrays& inputs, mx::Stream s)
      const override; // norms, rotations

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums,
      mx::Stream s) const override;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const override;
  Call<OpPtr> batched(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override;

  bool late() const {
    return norm.rounding == Rounding::Late;
  }
  bool has_weight() const {
    return norm.has(kWeight);
  }
  int tensors() const {
    return rotated + has_v;
  }
  // Where the inputs have tensor i, the offset and the frequencies.
  int tensor_at(int i) const {
    return std::min(i, rotated) * norm.n_inputs();
  }
  int offset_at() const {
    return tensor_at(rotated) + has_v;
  }
  const array* weight_of(const Arrays& inputs, int i) const {
    return has_weight() && i < rotated ? &inputs[tensor_at(i) + 1] : nullptr;
  }
  int rotated_dims(const array& x) const {
    return dims.value_or(x.shape(-1));
  }
  // The norm of tensor i.
  NormSpec norm_of(int i) const;
  // A rotation of one tensor by the same angles.
  NormRope rotation(mx::Dtype dtype, bool to_head_major) const;
};

// Throw std::invalid_argument if what is rotated does not fit x's heads.
void check_dims(const char* op, const array& x, int dims);
void check_freqs(const char* op, const array& freqs, int dims);

} // namespace mlx_norms
