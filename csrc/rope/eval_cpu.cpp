// Copyright © 2026 mlx_norms contributors
//
// Some tokens at a time: their angles, and then all heads of all tensors.

#include "csrc/cpu/row_blocks.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/op/node.h"
#include "csrc/rope/cpu_kernels.h"
#include "csrc/rope/norm_rope.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

using namespace cpu;

namespace {

constexpr int kMaxTensors = 3;
// So many at once, as the results of a head adjoin.
constexpr int64_t kTokens = 16;

// The tokens of some tensors [..., L, H, D].
Axes token_axes(const std::vector<const array*>& tensors) {
  Axes axes;
  for (size_t i = 0; i + 2 < tensors[0]->ndim(); ++i) {
    Axis axis{tensors[0]->shape(i), {}};
    for (size_t n = 0; n < tensors.size(); ++n) {
      axis.strides[n] = tensors[n]->strides(i);
    }
    append(axes, axis);
  }
  return axes;
}

} // namespace

void NormRope::eval_cpu(
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) const {
  struct TensorRows {
    RopeRow row{}; // the first
    int64_t heads = 0;
    int64_t head_stride = 0;
    Parameter weight;
  };
  std::array<TensorRows, kMaxTensors> all;
  std::vector<const array*> read;
  const auto& first = inputs[0];
  int64_t width = first.shape(-1);
  int64_t positions = first.shape(-3);
  int64_t elements = 0; // of a token
  int count = 0;
  for (int i = 0; i < tensors(); ++i) {
    const auto& x = inputs[tensor_at(i)];
    if (x.size() == 0) {
      continue;
    }
    auto& tensor = all[count++];
    tensor.heads = x.shape(-2);
    tensor.head_stride = x.strides(-2);
    tensor.row.x = rows_in(x, 0);
    tensor.row.y = rows_out(outputs[i]);
    tensor.row.factor = norm_of(i).multiplier;
    tensor.row.rotated = i < rotated;
    tensor.weight = Parameter(weight_of(inputs, i), norm.weight_offset);
    read.push_back(&x);
    elements += tensor.heads * width;
  }
  if (count == 0) {
    return;
  }

  RopeJob job{};
  job.width = width;
  job.dims = rotated_dims(first);
  job.traditional = traditional;
  job.normalized = normalized;
  job.rope_first = rope_first;
  job.late = late();
  job.eps = norm.eps;
  AnglesJob angles{};
  angles.dims = job.dims;
  angles.traditional = traditional;
  angles.type = late() ? Float::f32 : float_type(first.dtype());
  const auto& offset = inputs[offset_at()];
  const auto* offsets = offset.data<int32_t>();
  const auto* freqs =
      has_freqs ? inputs[offset_at() + 1].data<float>() : nullptr;

  auto axes = token_axes(read);
  auto tokens = size_of(axes);
  int64_t batches_per_offset =
      tokens / positions / static_cast<int64_t>(offset.size());
  auto blocks = blocks_by_threads(tokens, elements);
  mx::cpu::get_command_encoder(stream).dispatch(
      [=, base = float{base}, scale = float{scale}, major = head_major]() {
        int64_t half = job.dims / 2;
        Scratch frequencies(half, 1);
        if (freqs) {
          for (int64_t i = 0; i < half; ++i) {
            frequencies.data()[i] = 1.0f / freqs[i];
          }
        } else {
          rope_kernels().inverse_frequencies(base, half, frequencies.data());
        }
        std::vector<FloatParameter> weights;
        weights.reserve(count);
        for (int n = 0; n < count; ++n) {
          weights.emplace_back(all[n].weight);
        }
        blocks.for_each([&](int, int64_t begin, int64_t end) {
          Scratch tables(width, 2 * kTokens);
          Scratch scratch(width, 2);
          auto at = angles;
          at.inverse_frequencies = frequencies.data();
          auto run = job;
          run.scratch = scratch.data();
          auto take = [&](int i) {
            at.cosines = tables.data() + 2 * i * padded(width);
            at.sines = at.cosines + padded(width);
            run.cosines = at.cosines;
            run.sines = at.sines;
          };
          for (auto first = begin; first < end;) {
            // Places of one sequence.
            auto batch = first / positions;
            auto index = first % positions;
            auto some = static_cast<int>(
                std::min({kTokens, end - first, positions - index}));
            auto start = offsets[batch / batches_per_offset];
            Steps steps[kTokens];
            for (int i = 0; i < some; ++i) {
              at.position = scale *
                  (static_cast<float>(index + i) + static_cast<float>(start));
              take(i);
              rope_kernels().angles(at);
              steps[i] = offsets_at(axes, first + i);
            }
            for (int n = 0; n < count; ++n) {
              const auto& tensor = all[n];
              bool one_weight = tensor.weight.row_count() == 1;
              auto row = tensor.row;
              for (int64_t head = 0; head < tensor.heads; ++head) {
                row.weight = weights[n].data();
                if (!one_weight) {
                  row.weight += head * padded(width);
                }
                for (int i = 0; i < some; ++i) {
                  auto to = major
                      ? (batch * tensor.heads + head) * positions + index + i
                      : (first + i) * tensor.heads + head;
                  row.x = from(
                      tensor.row.x, steps[i][n] + head * tensor.head_stride);
                  row.y = from(tensor.row.y, to * width);
                  take(i);
                  rope_kernels().row(run, row);
                }
              }
            }
            first += some;
          }
        });
      });
}

} // namespace mlx_norms
