// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/merging.h"
#include "csrc/norm/spec.h"
#include "mlx/primitives.h"

namespace mlx_norms {

// How the weight of a projection, of shape (N, K), is stored.
struct Projection {
  int bits = 0;       // 0: an array; 4 or 8: MLX's affine quantization
  int group_size = 0; // elements of a row that share a scale and a bias
  bool bias = false;  // added to the projection's output

  bool operator==(const Projection&) const = default;

  // The weight, [its scales, its biases], [bias].
  int n_inputs() const {
    return (bits ? 3 : 1) + bias;
  }
};

// A norm and the projections of its output or, without a norm, one projection,
// to which the residual is then added.
struct NormLinearSpec {
  NormSpec norm;
  std::vector<Projection> projections; // 1 to 4
  bool gated = false; // two, of one shape: silu(first) * second
  bool normed = true;

  bool operator==(const NormLinearSpec&) const = default;

  int n_projected() const {
    return gated ? 1 : static_cast<int>(projections.size());
  }
  bool returns_sum() const {
    return normed && norm.has(kResidual);
  }
};

// A quantized product without a norm, and its inputs. `weight` is what is
// packed, its scales and its biases.
struct QuantizedProduct {
  NormLinearSpec spec;
  Arrays inputs;

  QuantizedProduct(
      const Projection& form,
      const array& x,
      const array* residual,
      const Arrays& weight)
      : spec{.projections = {form}, .normed = false},
        inputs{x} {
    spec.norm.operands.set(kResidual, residual != nullptr);
    if (residual) {
      inputs.push_back(*residual);
    }
    inputs.insert(inputs.end(), weight.begin(), weight.end());
  }
};

// The inputs of one projection, by name.
struct ProjectionInputs {
  const array& weight;
  const array* scales; // of affine quantization, like biases
  const array* biases;
  const array* bias; // added to the output

  ProjectionInputs(const Projection& p, const array* first)
      : weight(*first++),
        scales(p.bits ? first++ : nullptr),
        biases(p.bits ? first++ : nullptr),
        bias(p.bias ? first++ : nullptr) {}
};

// The inputs of each projection.
std::vector<ProjectionInputs> projection_inputs(
    const NormLinearSpec& spec,
    const Arrays& inputs);

// One launch for few rows. Inputs: those of the norm (see NormSpec), then those
// of each projection. Outputs: one per projection, or the gated one; [sum].
class NormLinear : public mx::Primitive {
 public:
  NormLinear(mx::Stream stream, NormLinearSpec spec)
      : Primitive(stream),
        spec_(std::move(spec)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return spec_.normed ? "mlx_norms::NormLinear"
                        : "mlx_norms::QuantizedMatmul";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

  const NormLinearSpec& spec() const {
    return spec_;
  }

 private:
  void check_shapes(const Arrays& inputs);

  NormLinearSpec spec_;
  Merging merging_;
};

// Whether one launch computes it: on a GPU's stream, for few rows, with dtypes
// and sizes that the kernel supports.
bool has_linear_kernel(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream);

// The outputs by one launch.
Arrays
norm_linear_node(const NormLinearSpec& spec, Arrays inputs, mx::Stream stream);

// The outputs by one launch, or by the norm and MLX's matmuls. The inputs have
// been checked.
Arrays
make_norm_linear(const NormLinearSpec& spec, Arrays inputs, mx::Stream stream);

// The outputs by the norm and MLX's matmuls.
Arrays fallback_norm_linear(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream);

} // namespace mlx_norms
