// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/primitive.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/sum.h"
#include "csrc/linear/checks.h"
#include "csrc/linear/mlx_product.h"
#include "csrc/linear/plan.h"
#include "csrc/linear/self_check.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

namespace {

// With more rows than this, two steps are faster: a matmul shares each weight
// among all rows. On an H200, with its matrix units, fewer rows are enough.
size_t most_rows(const NormLinearSpec& spec, Backend backend) {
  if (!spec.normed) {
    return kProductRows;
  }
  bool packed = spec.projections[0].bits != 0;
  return backend == Backend::Cuda && !packed ? 4 : 8;
}

// The dtype that project() returns.
mx::Dtype projected_dtype(const ProjectionInputs& in, mx::Dtype x) {
  auto dtype =
      mx::promote_types(x, in.scales ? in.scales->dtype() : in.weight.dtype());
  for (auto* other : {in.biases, in.bias}) {
    if (other) {
      dtype = mx::promote_types(dtype, other->dtype());
    }
  }
  return dtype;
}

// a, row-contiguous by the time the kernel reads it.
array dense(const array& a, mx::Stream s) {
  bool is_dense = a.is_available() && a.flags().row_contiguous;
  return is_dense ? a : mx::contiguous(a, /* allow_col_major= */ false, s);
}

// The bias of each row of x. In a trace its shape comes from a sum: addmm would
// make its result's shape part of the graph.
array bias_of_rows(const array& bias, const array& x, mx::Stream s) {
  if (!x.is_tracer()) {
    return bias;
  }
  auto column = sum_over(x, -1, s);
  return mx::broadcast_arrays({bias, column}, s)[0];
}

array project_dense(
    const array& weight,
    const array* bias,
    const array& x,
    mx::Stream s) {
  auto columns = mx::transpose(weight, s);
  if (!bias) {
    return mx::matmul(x, columns, s);
  }
  return mx::addmm(bias_of_rows(*bias, x, s), x, columns, 1.0f, 1.0f, s);
}

// Projects as nn.Linear and nn.QuantizedLinear do.
array project(
    const Projection& p,
    const ProjectionInputs& in,
    const array& x,
    mx::Stream s) {
  auto shape = x.shape();
  shape.back() = in.weight.shape(0);
  bool empty = x.shape(-1) > 0 && (x.size() == 0 || shape.back() == 0);
  if (empty && !x.is_tracer()) {
    // On a GPU MLX's matmuls divide by the result's size.
    return mx::zeros(shape, projected_dtype(in, x.dtype()), s);
  }
  if (!p.bits) {
    return project_dense(in.weight, in.bias, x, s);
  }
  const auto& [w, scales, biases] = std::tie(in.weight, *in.scales, *in.biases);
  if (x.size() == 0) {
    // MLX's quantized_matmul divides by the number of rows.
    auto weight = mx::dequantize(
        w,
        scales,
        biases,
        p.group_size,
        p.bits,
        "affine",
        std::nullopt,
        std::nullopt,
        s);
    return project_dense(weight, in.bias, x, s);
  }
  // MLX's CUDA kernels accept only dense arrays.
  auto of_groups = dense(biases, s);
  auto y = mlx_product(
      x,
      dense(w, s),
      dense(scales, s),
      &of_groups,
      {.group_size = p.group_size, .bits = p.bits},
      s);
  return in.bias ? mx::add(y, *in.bias, s) : y;
}

std::vector<mx::Dtype> output_dtypes(
    const NormLinearSpec& spec,
    const Arrays& inputs) {
  NormInputs in(spec.norm.operands, inputs.data());
  std::vector<mx::Dtype> dtypes;
  for (const auto& projection : projection_inputs(spec, inputs)) {
    dtypes.push_back(projected_dtype(projection, in.sum_dtype()));
  }
  if (spec.gated) {
    dtypes = {mx::promote_types(dtypes[0], dtypes[1])};
  }
  if (spec.returns_sum()) {
    dtypes.push_back(in.sum_dtype());
  }
  return dtypes;
}

// Throws std::invalid_argument if shapes do not fit each other or the spec.
void check_projections(
    const char* op,
    const NormLinearSpec& spec,
    const Arrays& inputs) {
  int length = inputs[0].shape(-1);
  auto n = spec.projections.size();
  auto* first = inputs.data() + spec.norm.n_inputs();
  Arrays weights;
  for (size_t i = 0; i < n; ++i) {
    auto p = spec.projections[i];
    auto* bias = p.bias ? first + p.n_inputs() - 1 : nullptr;
    auto argument = nth("weights", i, n);
    auto stored =
        check_weight(op, argument, {first, first + (p.bits ? 3 : 1)}, length);
    stored.bias = p.bias;
    if (stored != p) {
      refuse(
          op,
          argument +
              " must have rows as long as the last axis of x, but that "
              "is " +
              std::to_string(length) + ".");
    }
    if (bias) {
      check_projection_bias(op, nth("biases", i, n), *bias, *first);
    }
    weights.push_back(*first);
    first += p.n_inputs();
  }
  if (spec.gated) {
    check_gated(op, weights);
  }
}

std::vector<mx::Shape> shapes_of(
    const NormLinearSpec& spec,
    const Arrays& inputs) {
  const auto& x = inputs[0];
  auto projections = projection_inputs(spec, inputs);
  std::vector<mx::Shape> shapes(spec.n_projected(), x.shape());
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].back() = projections[i].weight.shape(0);
  }
  if (spec.returns_sum()) {
    shapes.push_back(x.shape());
  }
  return shapes;
}

// A product over the rows of a vmap. A residual that is not mapped as x is is
// added in a step of its own.
std::pair<Arrays, std::vector<int>> mapped_product(
    NormLinearSpec spec,
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) {
  bool has_residual = spec.norm.has(kResidual);
  check_unmapped(axes, 1 + has_residual);
  auto in = inputs;
  for (int i = 0; i < 1 + has_residual; ++i) {
    in[i] = with_leading_axis(inputs[i], axes[i], s);
  }
  if (!has_residual || (axes[0] >= 0 && axes[1] >= 0)) {
    return with_leading_axes(make_norm_linear(spec, std::move(in), s));
  }
  auto residual = in[1];
  in.erase(in.begin() + 1);
  spec.norm.operands.set(kResidual, false);
  auto y = make_norm_linear(spec, std::move(in), s)[0];
  return with_leading_axes({mx::add(y, residual, s)});
}

Function fallback(const NormLinearSpec& spec, mx::Stream stream) {
  return [=](const Arrays& inputs) {
    return fallback_norm_linear(spec, inputs, stream);
  };
}

} // namespace

std::vector<ProjectionInputs> projection_inputs(
    const NormLinearSpec& spec,
    const Arrays& inputs) {
  std::vector<ProjectionInputs> all;
  all.reserve(spec.projections.size());
  auto* first = inputs.data() + spec.norm.n_inputs();
  for (const auto& p : spec.projections) {
    all.emplace_back(p, first);
    first += p.n_inputs();
  }
  return all;
}

Arrays NormLinear::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  return jvp_of(fallback(spec_, stream()), primals, tangents, argnums);
}

Arrays NormLinear::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  return vjp_of(fallback(spec_, stream()), primals, cotangents, argnums);
}

std::pair<Arrays, std::vector<int>> NormLinear::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  int n_rows = 1 + spec_.norm.has(kResidual);
  auto parameters = axes.begin() + n_rows;
  if (!spec_.normed) {
    return mapped_product(spec_, inputs, axes, stream());
  }
  if (std::any_of(parameters, axes.end(), [](int a) { return a >= 0; })) {
    // The kernel accepts one of each for all rows.
    auto two_steps = fallback(spec_, stream());
    return with_leading_axes(mx::vmap(two_steps, axes)(inputs));
  }
  auto batch = with_leading_batch(
      Arrays(inputs.begin(), inputs.begin() + n_rows),
      std::vector<int>(axes.begin(), parameters),
      stream());
  batch.insert(batch.end(), inputs.begin() + n_rows, inputs.end());
  return with_leading_axes(make_norm_linear(spec_, std::move(batch), stream()));
}

bool NormLinear::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const NormLinear&>(other);
  return spec_ == o.spec_ && merging_.into(o.merging_);
}

void NormLinear::check_shapes(const Arrays& inputs) {
  Arrays of_norm(inputs.begin(), inputs.begin() + spec_.norm.n_inputs());
  if (spec_.normed) {
    Norm(spec_.norm, mx::float32, of_norm).check(of_norm);
  }
  check_projections(name(), spec_, inputs);
  if (!spec_.normed && spec_.norm.has(kResidual)) {
    check_added(name(), inputs[1], shapes_of(spec_, inputs)[0]);
  }
}

std::vector<mx::Shape> NormLinear::output_shapes(const Arrays& inputs) {
  return shapes_of(spec_, inputs);
}

bool has_linear_kernel(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream) {
  auto backend = backend_of(stream);
  const auto& x = inputs[0];
  return has_gpu_kernels(stream) && x.size() > 0 &&
      (spec.normed || backend == Backend::Metal ||
       multiplies_by_tiles(stream)) &&
      x.size() / x.shape(-1) <= most_rows(spec, backend) &&
      kernel_takes(spec, inputs) &&
      (backend != Backend::Metal || agrees(spec, inputs, stream));
}

Arrays
norm_linear_node(const NormLinearSpec& spec, Arrays inputs, mx::Stream stream) {
  auto shapes = shapes_of(spec, inputs);
  auto dtypes = output_dtypes(spec, inputs);
  // Rows are read in place, with any layout.
  for (size_t i = 1 + spec.norm.has(kResidual); i < inputs.size(); ++i) {
    inputs[i] = dense(inputs[i], stream);
  }
  return array::make_arrays(
      std::move(shapes),
      dtypes,
      std::make_shared<NormLinear>(stream, spec),
      std::move(inputs));
}

Arrays
make_norm_linear(const NormLinearSpec& spec, Arrays inputs, mx::Stream stream) {
  return has_linear_kernel(spec, inputs, stream)
      ? norm_linear_node(spec, std::move(inputs), stream)
      : fallback_norm_linear(spec, inputs, stream);
}

Arrays fallback_norm_linear(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream) {
  NormInputs in(spec.norm.operands, inputs.data());
  if (!spec.normed) {
    auto product = projection_inputs(spec, inputs)[0];
    auto y = project(spec.projections[0], product, in.x(), stream);
    return {in[kResidual] ? mx::add(y, *in[kResidual], stream) : y};
  }
  auto dtype = in.sum_dtype();
  auto normalized = make_norm(
      spec.norm,
      dtype,
      Arrays(inputs.begin(), inputs.begin() + spec.norm.n_inputs()),
      stream);
  auto projections = projection_inputs(spec, inputs);
  Arrays outputs;
  for (size_t i = 0; i < projections.size(); ++i) {
    outputs.push_back(
        project(spec.projections[i], projections[i], normalized[0], stream));
  }
  if (spec.gated) {
    const auto& gate = outputs[0];
    auto silu = mx::multiply(gate, mx::sigmoid(gate, stream), stream);
    outputs = {mx::multiply(silu, outputs[1], stream)};
  }
  if (spec.norm.has(kResidual)) {
    outputs.push_back(normalized[1]);
  }
  return outputs;
}

} // namespace mlx_norms
