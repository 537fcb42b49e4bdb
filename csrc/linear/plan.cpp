// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/plan.h"

#include <algorithm>
#include <string>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

using K = kernels::norm_linear;
// One per projection.
constexpr Input kWeights[] = {K::w1, K::w2, K::w3, K::w4};
constexpr Input kScales[] = {K::scales1, K::scales2, K::scales3, K::scales4};
constexpr Input kZeros[] = {K::zeros1, K::zeros2, K::zeros3, K::zeros4};
constexpr Input kBiases[] = {K::bias1, K::bias2, K::bias3, K::bias4};
constexpr Output kOutputs[] = {K::y1, K::y2, K::y3, K::y4};
constexpr int kMaxProjections = 4;
constexpr uint32_t kMaxGroups = 65535; // along y, on CUDA
constexpr int kVectorBytes = 16;
constexpr int kQuantizedWidth = 16; // weights per vector

// An instantiation of the kernel: the rows and outputs of a block, and the
// vectors of each weight's row that a thread loads at once: on Metal, where
// registers are fewer, four outputs and one vector.
struct Shape {
  int width; // elements per vector
  int rows;
  int cuda_outputs;
  int cuda_vectors;
  // What registers allow on CUDA, for RMSNorm and for LayerNorm.
  uint32_t rms_threads_per_core;
  uint32_t layer_threads_per_core;
};

constexpr Shape kShapes[] = {
    {4, 1, 4, 4, 384, 512},
    {4, 4, 4, 1, 512, 512},
    {8, 1, 4, 4, 384, 384},
    {8, 2, 4, 2, 512, 512},
    {8, 4, 4, 1, 512, 512},
    {8, 8, 4, 1, 384, 384},
    {16, 1, 8, 1, 512, 512},
    {16, 2, 4, 2, 384, 384},
    {16, 4, 4, 1, 384, 384},
    {16, 8, 4, 1, 256, 256}};

int width_of(const NormLinearSpec& spec, const mx::array& x) {
  return spec.projections[0].bits ? kQuantizedWidth
                                  : kVectorBytes / x.itemsize();
}

// The smallest shape that holds all rows at once, or else the largest.
const Shape& shape_for(int width, int rows) {
  const Shape* best = nullptr;
  for (const auto& shape : kShapes) {
    if (shape.width == width && (!best || best->rows < rows)) {
      best = &shape;
    }
  }
  return *best;
}

// More than one SIMD-group per block if there are too few blocks to keep the
// GPU's memory busy, as long as each thread has enough elements of a row. This
// depends only on the weights, so rows are batch-invariant.
int simds_for(int64_t outputs, int length, int width, mx::Stream stream) {
  constexpr int kMaxSimds = 8;
  if (int chosen = device_limits(stream).product_simds) {
    return std::min(chosen, kMaxSimds);
  }
  // On CUDA, as the layers of an 8B Llama run fastest on an H200; on Metal a
  // guess.
  bool cuda = backend_of(stream) == Backend::Cuda;
  int64_t many =
      cuda ? int64_t{256} * device_limits(stream).cores : kManyOutputs;
  int elements = cuda ? 64 : 4 * width;
  int simds = 1;
  while (simds < kMaxSimds && outputs * simds < many &&
         length >= 2 * simds * Geometry::kSimdSize * elements) {
    simds *= 2;
  }
  return simds;
}

// Whether vectors of 16 bytes (8 if weights have four bits) can be read from
// any row.
bool is_aligned(const mx::array& weight) {
  return weight.offset() % kVectorBytes == 0 &&
      weight.shape(-1) * weight.itemsize() % kVectorBytes == 0;
}

bool is_known_not_to_be_dense(const mx::array& a) {
  return a.is_available() && !a.flags().row_contiguous;
}

} // namespace

bool kernel_takes(const NormLinearSpec& spec, const Arrays& inputs) {
  NormInputs in(spec.norm.operands, inputs.data());
  auto dtype = in.x().dtype();
  auto is_float = [](mx::Dtype d) {
    return d == mx::float32 || d == mx::float16 || d == mx::bfloat16;
  };
  auto is_parameter = [&](const mx::array* a) {
    return !a || (a->ndim() == 1 && is_float(a->dtype()));
  };
  constexpr int kLongestRow = 1 << 30;
  bool takes_norm = in.x().ndim() > 0 && in.x().shape(-1) > 0 &&
      in.x().shape(-1) <= kLongestRow && is_float(dtype) &&
      (!in[kResidual] || in[kResidual]->dtype() == dtype) &&
      is_parameter(in[kWeight]) && is_parameter(in[kBias]) &&
      (spec.norm.center || !spec.norm.has(kBias)) && !spec.norm.clamp;
  auto n = spec.projections.size();
  if (!takes_norm || n < 1 || n > kMaxProjections || (spec.gated && n != 2) ||
      (!spec.normed && spec.projections[0].bits == 0)) {
    return false;
  }
  const auto& first = spec.projections[0];
  bool is_form = first.bits == 0 || first.bits == 4 || first.bits == 8;
  bool is_group = first.group_size == 32 || first.group_size == 64 ||
      first.group_size == 128;
  if (!is_form || (first.bits && !is_group)) {
    return false;
  }
  int64_t outputs = 0;
  auto projections = projection_inputs(spec, inputs);
  for (size_t i = 0; i < n; ++i) {
    const auto& p = spec.projections[i];
    const auto& [weight, scales, biases, bias] = projections[i];
    for (auto* a : {&weight, scales, biases, bias}) {
      bool is_packed = p.bits && a == &weight;
      if (a &&
          (a->dtype() != (is_packed ? mx::uint32 : dtype) ||
           is_known_not_to_be_dense(*a))) {
        return false;
      }
    }
    if (p.bits != first.bits || p.group_size != first.group_size ||
        weight.ndim() != 2 || weight.shape(0) == 0 ||
        (spec.gated && weight.shape(0) != projections[0].weight.shape(0))) {
      return false;
    }
    outputs += weight.shape(0);
  }
  // Their vectors of four elements, or more, are indexed by 32 bits.
  constexpr int64_t kMaxElements = int64_t{4} << 32;
  return outputs * in.x().shape(-1) <= kMaxElements &&
      static_cast<int64_t>(in.x().size()) <= kMaxElements;
}

int rows_of_block(const NormLinearSpec& spec, const array& x) {
  return shape_for(width_of(spec, x), row_count(x)).rows;
}

LaunchPlan plan_norm_linear(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  NormInputs in(spec.norm.operands, inputs.data());
  if (in.x().size() == 0) {
    return plan;
  }
  const auto& form = spec.projections[0];
  int length = in.x().shape(-1);
  int width = width_of(spec, in.x());
  int piece = std::min(width, 8);
  auto rows = row_count(in.x());
  const auto& shape = shape_for(width, rows);
  bool cuda = backend_of(stream) == Backend::Cuda;
  int block = cuda ? shape.cuda_outputs : 4;

  auto read_row = [&](const mx::array* a) -> std::optional<RowOperand> {
    return a ? std::optional(read_rows(*a, piece, plan)) : std::nullopt;
  };
  auto x = read_row(&in.x());
  auto residual = read_row(in[kResidual]);
  auto projections = projection_inputs(spec, inputs);
  bool aligned = true;
  int biases = 0;
  int64_t blocks = 0;
  int64_t n_outputs = 0;
  std::array<int32_t, 6> sizes = {};
  for (size_t i = 0; i < projections.size(); ++i) {
    const auto& p = projections[i];
    aligned &= is_aligned(p.weight);
    biases |= (p.bias != nullptr) << i;
    sizes[i] = p.weight.shape(0);
    n_outputs += sizes[i];
    blocks += ceil_div(sizes[i], block);
  }
  if (spec.gated) {
    blocks = ceil_div(sizes[0], block / 2);
  }
  if (blocks == 0 && !spec.returns_sum()) { // so in a shapeless graph alone
    return LaunchPlan(stream);
  }
  sizes[4] = rows;
  sizes[5] = length;
  int simds = simds_for(n_outputs, length, width, stream);
  int vectors = cuda ? shape.cuda_vectors : 1;
  int chunk = simds * Geometry::kSimdSize * width * vectors;

  auto& launch = plan.launch({"norm_linear", width, shape.rows});
  launch.set(K::simds_per_row, simds);
  launch.set(K::center, spec.norm.center);
  launch.set(K::lanes_per_row, Geometry::kSimdSize);
  launch.set(K::whole, length % chunk == 0);
  launch.set(K::no_tail, length % piece == 0);
  launch.set(K::scattered, false);
  launch.set(K::full_count, 0);
  launch.set(K::has_weight, spec.norm.has(kWeight));
  launch.set(K::has_bias, spec.norm.has(kBias));
  launch.set(K::has_weight_offset, spec.norm.weight_offset != 0.0f);
  auto read_parameter =
      [&](Input to, Constant<int32_t> flags, const mx::array* a) {
        launch.set(flags, a ? parameter_flags(*a, piece) : 0);
        if (a) {
          launch.set(to, *a);
        }
      };
  read_parameter(K::norm_weight, K::weight_flags, in[kWeight]);
  read_parameter(K::norm_bias, K::bias_flags, in[kBias]);
  int n_bound = blocks > 0 ? projections.size() : 1;
  launch.set(K::linear_projections, blocks > 0 ? n_bound : 0);
  launch.set(K::linear_biases, biases & ((1 << n_bound) - 1));
  launch.set(K::linear_bits, form.bits);
  launch.set(K::linear_group_size, form.group_size);
  launch.set(K::linear_aligned, aligned);
  launch.set(K::linear_normed, spec.normed);
  bind_rows(launch, K::x, x);
  bind_rows(launch, K::residual, residual);
  const auto* sum = spec.returns_sum() ? &outputs.back() : nullptr;
  bind_rows(launch, K::sum, sum, piece);
  launch.set(K::linear_gated, spec.gated);

  for (int i = 0; i < n_bound; ++i) {
    auto read = [&](Input to, const mx::array* a) {
      if (a) {
        launch.set(to, *a);
      }
    };
    read(kWeights[i], &projections[i].weight);
    read(kScales[i], projections[i].scales);
    read(kZeros[i], projections[i].biases);
    read(kBiases[i], projections[i].bias);
  }
  for (int i = 0; i < std::min(spec.n_projected(), n_bound); ++i) {
    launch.set(kOutputs[i], outputs[i]);
  }
  launch.set(K::sizes, sizes);
  launch.set(K::eps, spec.norm.eps);
  launch.set(K::weight_offset, spec.norm.weight_offset);

  // On Metal each threadgroup stores a piece of the sum.
  bool sum_apart = spec.returns_sum() && cuda;
  launch.groups[0] = std::max<int64_t>(blocks + sum_apart, 1);
  launch.groups[1] = ceil_div(rows, shape.rows);
  if (launch.groups[1] > kMaxGroups) {
    throw std::runtime_error(
        "[mlx_norms] A norm and its projections in one launch take at most " +
        std::to_string(kMaxGroups * shape.rows) + " rows.");
  }
  launch.group[0] = Geometry::kSimdSize * simds;
  launch.threads_per_core = spec.norm.center ? shape.layer_threads_per_core
                                             : shape.rms_threads_per_core;
  return plan;
}

} // namespace mlx_norms
