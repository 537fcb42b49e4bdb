// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/norm_linear.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "csrc/common/axes.h"
#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/self_check.h"
#include "csrc/linear/checks.h"
#include "csrc/linear/mlx_product.h"
#include "csrc/linear/plan.h"
#include "csrc/norm/norm.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

std::atomic<int> forced_rows = 0;

// With more rows than this, two steps are faster: a matmul shares each weight
// among all rows. On an H200, with its matrix units, fewer rows are enough.
size_t max_rows(const NormLinearSpec& spec, mx::Stream stream) {
  if (int forced = forced_rows) {
    return forced;
  }
  if (!spec.normed && multiplies_by_tiles(stream)) {
    return kProductRows;
  }
  if (backend_of(stream) == Backend::Metal) {
    return device_limits(stream).product_rows;
  }
  return spec.projections[0].bits ? 8 : 4;
}

// Throws std::invalid_argument if shapes do not fit each other or the spec.
void check_projections(
    const char* op,
    const NormLinearSpec& spec,
    const Arrays& inputs) {
  int length = inputs[0].shape(-1);
  auto n = spec.projections.size();
  auto* first = inputs.data() + spec.norm.n_inputs();
  Arrays gated;
  for (size_t i = 0; i < n; ++i) {
    auto p = spec.projections[i];
    auto* bias = p.bias ? first + p.n_inputs() - 1 : nullptr;
    auto argument = nth("weights", i, n);
    std::span<const array> weight(first, p.bits ? 3 : 1);
    auto stored = check_weight(op, argument, weight, length);
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
    if (spec.gated) {
      gated.push_back(*first);
    }
    first += p.n_inputs();
  }
  if (spec.gated) {
    check_gated(op, gated);
  }
}

// A weight like that of p, as it is stored, with no more outputs than make a
// difference. It is computed on the stream that uses it.
Arrays weight_like(
    const Projection& p,
    const array& weight,
    const array& x,
    uint64_t seed,
    mx::Stream s) {
  int length = x.shape(-1);
  float bound = 1.0f / std::sqrt(static_cast<float>(length));
  auto w = mx::random::uniform(
      -bound,
      bound,
      {std::min(weight.shape(0), kManyOutputs), length},
      x.dtype(),
      mx::random::key(seed),
      s);
  if (!p.bits) {
    return {w};
  }
  return mx::quantize(w, p.group_size, p.bits, "affine", std::nullopt, s);
}

// A product over the rows of a vmap. A residual that is not mapped as x is is
// added in a step of its own.
Arrays mapped_product(
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
    return make_norm_linear(std::move(spec), std::move(in), s);
  }
  auto residual = in[1];
  in.erase(in.begin() + 1);
  spec.norm.operands.set(kResidual, false);
  auto y = make_norm_linear(std::move(spec), std::move(in), s)[0];
  return {mx::add(y, residual, s)};
}

} // namespace

void set_product_rows(int rows) {
  forced_rows = rows;
}

NormLinear::NormLinear(NormLinearSpec given, const Arrays& inputs)
    : spec(std::move(given)) {
  auto x = NormInputs(spec.norm.operands, inputs.data()).sum_dtype();
  for (const auto& projection : projection_inputs(spec, inputs)) {
    dtypes.push_back(projected_dtype(projection, x));
  }
  if (spec.gated) {
    dtypes = {mx::promote_types(dtypes[0], dtypes[1])};
  }
  if (spec.returns_sum()) {
    dtypes.push_back(x);
  }
}

mx::Shape NormLinear::shape(const Arrays& inputs, size_t i) const {
  auto shape = inputs[0].shape();
  if (static_cast<int>(i) < spec.n_projected()) {
    shape.back() = projection_inputs(spec, inputs)[i].weight.shape(0);
  }
  return shape;
}

void NormLinear::check(const Arrays& inputs) const {
  if (spec.normed) {
    Norm(spec.norm, mx::float32, inputs).check(inputs);
  }
  check_projections(name(), spec, inputs);
  if (!spec.normed && spec.norm.has(kResidual)) {
    check_added(name(), inputs[1], shape(inputs, 0));
  }
}

bool NormLinear::suits(const Arrays& inputs, mx::Stream s) const {
  bool metal = backend_of(s) == Backend::Metal;
  const auto& x = inputs[0];
  // A centered row with weights of few bits takes twice the instructions of
  // MLX's product there.
  bool apart =
      metal && spec.norm.center && spec.projections[0].bits && forced_rows == 0;
  return has_gpu_kernels(s) && x.size() > 0 && !apart &&
      (spec.normed || metal || multiplies_by_tiles(s)) &&
      x.size() / x.shape(-1) <= max_rows(spec, s) && kernel_takes(spec, inputs);
}

Arrays NormLinear::fallback(const Arrays& inputs, mx::Stream stream) const {
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

LaunchPlan NormLinear::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream s) const {
  return !spec.normed && multiplies_by_tiles(s)
      ? plan_tiles(spec, inputs, outputs[0], s)
      : plan_norm_linear(spec, inputs, outputs, s);
}

void NormLinear::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  const auto& x = inputs[0];
  numbers.insert(
      numbers.end(),
      {x.shape(-1), rows_of_block(spec, x), spec.gated, spec.normed});
  spec.norm.append_key(numbers);
  for (const auto& p : spec.projections) {
    numbers.insert(numbers.end(), {p.bits, p.group_size, p.bias});
  }
  for (size_t i = spec.norm.n_inputs(); i < inputs.size(); ++i) {
    numbers.push_back(std::min(inputs[i].shape(0), kManyOutputs));
  }
}

OpPtr NormLinear::sampled(const Arrays&, mx::Stream) const {
  auto flags = *this;
  flags.spec.norm = spec.norm.flags();
  return shared(std::move(flags));
}

Arrays NormLinear::sample(const Arrays& inputs, mx::Stream s) const {
  Arrays like;
  const auto& x = inputs[0];
  auto length = x.shape(-1);
  int n_rows = rows_of_block(spec, x);
  mx::Shape rows{n_rows, length};
  int outputs = inputs[spec.norm.n_inputs()].shape(0);
  mx::Shape products{n_rows, std::min(outputs, kManyOutputs)};
  for (int i = 0; i < spec.norm.n_inputs(); ++i) {
    bool parameter = i > spec.norm.has(kResidual);
    bool is_added = i == 1 && !spec.normed;
    like.push_back(
        self_check::values(
            parameter      ? mx::Shape{length}
                : is_added ? products
                           : rows,
            inputs[i].dtype(),
            17 * i + 1,
            /* large= */ false,
            s));
  }
  for (const auto& p : spec.projections) {
    auto first = like.size();
    auto weight = weight_like(p, inputs[first], x, first, s);
    like.insert(like.end(), weight.begin(), weight.end());
    if (p.bias) {
      const auto& bias = inputs[like.size()];
      mx::Shape shape{std::min(bias.shape(0), kManyOutputs)};
      like.push_back(self_check::values(shape, bias.dtype(), first, false, s));
    }
  }
  return like;
}

// MLX's quantized_matmul may sum in the dtype of its inputs.
Arrays NormLinear::reference(const Arrays& sample, mx::Stream s) const {
  Arrays wide;
  for (const auto& a : sample) {
    bool packed = a.dtype() == mx::uint32;
    wide.push_back(packed ? a : mx::astype(a, mx::float32, s));
  }
  return fallback(wide, s);
}

Arrays NormLinear::mapped(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (!spec.normed) {
    return mapped_product(spec, inputs, axes, s);
  }
  int n_rows = 1 + spec.norm.has(kResidual);
  if (any_batched(axes, n_rows, axes.size())) {
    // The kernel accepts one of each for all rows.
    return Op::mapped(inputs, axes, s);
  }
  auto batch = with_leading_batch(
      Arrays(inputs.begin(), inputs.begin() + n_rows),
      std::vector<int>(axes.begin(), axes.begin() + n_rows),
      s);
  batch.insert(batch.end(), inputs.begin() + n_rows, inputs.end());
  return make_norm_linear(spec, std::move(batch), s);
}

Arrays make_norm_linear(NormLinearSpec spec, Arrays inputs, mx::Stream stream) {
  size_t n_rows = 1 + spec.norm.has(kResidual);
  auto op = shared(NormLinear(std::move(spec), inputs));
  if (!has_kernel(op, inputs, stream)) {
    return op->fallback(inputs, stream);
  }
  // Rows are read in place, with any layout.
  for (size_t i = n_rows; i < inputs.size(); ++i) {
    inputs[i] = dense(std::move(inputs[i]), stream);
  }
  return node(std::move(op), std::move(inputs), stream);
}

} // namespace mlx_norms
