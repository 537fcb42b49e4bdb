// Copyright © 2026 mlx_norms contributors
//
// One token after another: its angles, and then all heads of all tensors.

#include "csrc/op/eval_cpu.h"
#include "csrc/cpu/row_blocks.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/rope/cpu_kernels.h"
#include "csrc/rope/norm_rope.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_norms {

using namespace cpu;

namespace {

constexpr int kMaxTensors = 3;

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
  struct Tensor {
    RopeHeads heads{};
    Parameter weight;
  };
  std::array<Tensor, kMaxTensors> all;
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
    auto& [heads, weight] = all[count++];
    heads.heads = x.shape(-2);
    heads.x = rows_in(x, x.strides(-2));
    heads.y = rows_out(outputs[i]);
    heads.y_stride = head_major ? positions * width : width;
    heads.factor = i == 0 ? float{q_scale} : 1.0f;
    heads.rotated = i < rotated;
    auto* of = weight_of(inputs, i);
    weight = Parameter(of, weight_offset);
    read.push_back(&x);
    elements += heads.heads * width;
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
  job.eps = eps;
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
          Scratch scratch(width, 4);
          auto row = [&](int i) { return scratch.data() + i * padded(width); };
          auto at = angles;
          at.inverse_frequencies = frequencies.data();
          at.cosines = row(0);
          at.sines = row(1);
          auto run = job;
          run.cosines = at.cosines;
          run.sines = at.sines;
          run.scratch = row(2);
          for (auto token = begin; token < end; ++token) {
            auto batch = token / positions;
            auto index = token % positions;
            auto start = offsets[batch / batches_per_offset];
            at.position =
                scale * (static_cast<float>(index) + static_cast<float>(start));
            rope_kernels().angles(at);
            auto steps = offsets_at(axes, token);
            for (int n = 0; n < count; ++n) {
              auto heads = all[n].heads;
              auto to = major ? batch * heads.heads * positions + index
                              : token * heads.heads;
              heads.x = from(heads.x, steps[n]);
              heads.y = from(heads.y, to * width);
              heads.weight = weights[n].data();
              heads.weight_rows = all[n].weight.row_count();
              rope_kernels().heads(run, heads);
            }
          }
        });
      });
}

template void Node<NormRope>::eval_cpu(const Arrays&, Arrays&);

} // namespace mlx_norms
