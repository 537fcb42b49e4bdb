// Copyright © 2026 mlx_norms contributors

#include "csrc/rope/norm_rope.h"

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/common/self_check.h"
#include "csrc/gpu/geometry.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm.h"
#include "csrc/op/node.h"
#include "csrc/rope/fast_rope.h"

namespace mlx_norms {

namespace {

array swap_heads(const array& x, bool swaps, mx::Stream s) {
  return swaps ? mx::swapaxes(x, -3, -2, s) : x;
}

// The results by norms and rotations, each of one tensor: norm(spec, dtype,
// inputs, stream) and rotate(op, x) make one.
template <typename Norm, typename Rotate>
Arrays in_order(
    const NormRope& op,
    const Arrays& inputs,
    mx::Stream s,
    Norm norm,
    Rotate rotate) {
  Arrays outputs;
  for (int i = 0; i < op.tensors(); ++i) {
    auto x = inputs[op.tensor_at(i)];
    auto* weight = op.weight_of(inputs, i);
    auto dtype = op.dtypes[i];
    auto between = op.late() ? mx::float32 : dtype;
    auto spec = op.norm_of(i);
    auto normalize = [&](const array& x, mx::Dtype to) {
      NormInputs in{{kX, &x}, {kWeight, weight}};
      return op.normalized ? norm(spec, to, in.arrays(), s)[0]
                           : mx::astype(x, to, s);
    };
    if (i >= op.rotated) {
      x = swap_heads(normalize(x, dtype), op.head_major, s);
    } else if (op.rope_first) {
      x = rotate(op.rotation(between, false), x);
      x = swap_heads(normalize(x, dtype), op.head_major, s);
    } else {
      x = rotate(op.rotation(dtype, op.head_major), normalize(x, between));
    }
    outputs.push_back(x);
  }
  return outputs;
}

// Whether heads have a row of the weight each.
bool of_heads(const array& weight) {
  return weight.size() > static_cast<size_t>(weight.shape(-1));
}

// The offset and the frequencies.
Arrays angles_of(const NormRope& op, const Arrays& inputs) {
  return {inputs.begin() + op.offset_at(), inputs.end()};
}

// Rotates by an op like MLX's, which takes [B, H, L, D] and one offset for all
// or for each B.
template <typename Rope>
array rotate_by(
    Rope rope,
    const NormRope& op,
    const array& x,
    const Arrays& angles,
    mx::Stream s) {
  auto rows = mx::swapaxes(x, -3, -2, s);
  if (op.dtypes[0] == mx::float32) { // MLX's result has its input's dtype
    rows = mx::astype(rows, mx::float32, s);
  }
  auto shape = rows.shape();
  auto batch_axes = static_cast<int>(x.ndim()) - 3;
  auto offset = angles[0];
  if (batch_axes > 1) {
    if (offset.size() > 1) { // of so many indices each
      auto each = static_cast<int>(offset.size());
      mx::Shape leading(shape.begin(), shape.end() - 3);
      int batches = 1;
      for (auto size : leading) {
        batches *= size;
      }
      offset = mx::repeat(
          mx::reshape(offset, {each}, s), batches / std::max(each, 1), 0, s);
    }
    rows = mx::flatten(rows, 0, batch_axes - 1, s);
  }
  auto y = rope(
      rows,
      op.rotated_dims(x),
      op.traditional,
      op.has_freqs ? std::nullopt : std::optional(float{op.base}),
      op.scale,
      offset,
      op.has_freqs ? std::optional(angles[1]) : std::nullopt,
      s);
  if (batch_axes > 1) {
    y = mx::reshape(y, shape, s);
  }
  y = mx::astype(y, op.dtypes[0], s);
  return swap_heads(y, !op.head_major, s);
}

// The results by MLX's norms, and by an op like MLX's for rotations.
template <typename Rope>
Arrays
by_ops(const NormRope& op, const Arrays& inputs, mx::Stream s, Rope rope) {
  auto angles = angles_of(op, inputs);
  auto rotate = [&](const NormRope& rotation, const array& x) {
    return rotate_by(rope, rotation, x, angles, s);
  };
  if (!op.normalized) {
    return {rotate(op, inputs[0])};
  }
  return in_order(op, inputs, s, fallback_of_inputs, rotate);
}

} // namespace

void check_dims(const char* op, const array& x, int dims) {
  if (dims <= 0 || dims % 2 != 0 || dims > x.shape(-1)) {
    refuse(
        op,
        "dims must be positive, even and at most the head_dim " +
            std::to_string(x.shape(-1)) + " but is " + std::to_string(dims) +
            ".");
  }
}

void check_freqs(const char* op, const array& freqs, int dims) {
  mx::Shape shape{dims / 2};
  if (freqs.shape() != shape) {
    refuse(
        op,
        "freqs must have shape " + text(shape) + " but has " +
            text(freqs.shape()) + ".");
  }
}

mx::Shape NormRope::shape(const Arrays& inputs, size_t i) const {
  auto shape = inputs[tensor_at(i)].shape();
  if (head_major) {
    std::swap(shape[shape.size() - 3], shape[shape.size() - 2]);
  }
  return shape;
}

NormSpec NormRope::norm_of(int i) const {
  auto spec = norm;
  if (i > 0) {
    spec.multiplier = 1.0f;
  }
  if (i >= rotated) {
    spec.operands.set(kWeight, false);
    spec.weight_offset = 0.0f;
  }
  return spec;
}

NormRope NormRope::rotation(mx::Dtype dtype, bool to_head_major) const {
  auto op = *this;
  op.rotated = 1;
  op.has_v = false;
  op.norm = {.rounding = norm.rounding};
  op.normalized = false;
  op.rope_first = false;
  op.head_major = to_head_major;
  op.dtypes = {dtype};
  return op;
}

void NormRope::check(const Arrays& inputs) const {
  const auto& x = inputs[0];
  auto tokens = [](const array& a) {
    return mx::Shape(a.shape().begin(), a.shape().end() - 2);
  };
  for (int i = 0; i < tensors(); ++i) {
    const auto& a = inputs[tensor_at(i)];
    if (tokens(a) != tokens(x) || a.shape(-1) != x.shape(-1)) {
      refuse(
          name(),
          "tensors must have one shape but for their heads, and have " +
              text(x.shape()) + " and " + text(a.shape()) + ".");
    }
    if (auto* weight = weight_of(inputs, i)) {
      check_head_weight(name(), "weight", *weight, "x", a);
    }
  }
  check_dims(name(), x, rotated_dims(x));
  const auto& offset = inputs[offset_at()];
  auto shape = tokens(x);
  shape.pop_back();
  size_t batches = 1;
  for (auto size : shape) {
    batches *= size;
  }
  auto offsets = offset.size();
  if (offsets != batches && (offsets == 0 || batches % offsets != 0)) {
    refuse(
        name(),
        "offset must have one element or one for each of " +
            std::to_string(batches) + " sequences but has shape " +
            text(offset.shape()) + ".");
  }
  if (has_freqs) {
    check_freqs(name(), inputs[offset_at() + 1], rotated_dims(x));
  }
}

Arrays NormRope::fallback(const Arrays& inputs, mx::Stream s) const {
  return by_ops(*this, inputs, s, fast_rope);
}

// Metal's fast sines, of MLX's kernel, may be off by most of what the check
// allows, and by more beyond half a turn; mx::sin's are not.
Arrays NormRope::reference(const Arrays& sample, mx::Stream s) const {
  auto sin = [&](const array& theta) { return mx::sin(theta, s); };
  auto cos = [&](const array& theta) { return mx::cos(theta, s); };
  return by_ops(*this, sample, s, [&](const auto&... arguments) {
    return rope_by(sin, cos, arguments...);
  });
}

Arrays NormRope::steps(const Arrays& inputs, mx::Stream s) const {
  if (!normalized) {
    return fallback(inputs, s);
  }
  auto angles = angles_of(*this, inputs);
  return in_order(
      *this, inputs, s, make_norm, [&](NormRope op, const array& x) {
        Arrays of{x};
        of.insert(of.end(), angles.begin(), angles.end());
        return make(std::move(op), std::move(of), s)[0];
      });
}

bool NormRope::suits(const Arrays& inputs, mx::Stream s) const {
  if (!has_gpu_kernels(s)) {
    return true;
  }
  const auto& x = inputs[0];
  auto geometry =
      geometry_for(RowKernel::Heads, x.shape(-1), x.itemsize(), backend_of(s));
  return geometry.simds == 1 && !geometry.looped;
}

void NormRope::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  for (int64_t number :
       {int64_t{inputs[0].shape(-1)},
        int64_t{rotated_dims(inputs[0])},
        int64_t{rotated},
        int64_t{has_v},
        int64_t{has_freqs},
        int64_t{normalized},
        int64_t{rope_first},
        int64_t{head_major},
        int64_t{traditional}}) {
    numbers.push_back(number);
  }
  norm.append_key(numbers);
  for (int i = 0; i < rotated; ++i) {
    auto* weight = weight_of(inputs, i);
    numbers.push_back(weight ? of_heads(*weight) : -1);
  }
}

OpPtr NormRope::sampled(const Arrays&, mx::Stream) const {
  auto op = *this;
  op.norm = norm.flags();
  op.base = 10000.0f;
  op.scale = 1.0f;
  return shared(std::move(op));
}

// Sequences of three tokens of two heads.
Arrays NormRope::sample(const Arrays& inputs, mx::Stream s) const {
  constexpr int kTokens = 3, kHeads = 2, kOffset = 5;
  int length = inputs[0].shape(-1);
  auto values = [&](mx::Shape shape, const array& like, uint32_t seed) {
    return self_check::values(
        std::move(shape), like.dtype(), seed, /* large= */ false, s);
  };
  Arrays few;
  for (int i = 0; i < tensors(); ++i) {
    const auto& x = inputs[tensor_at(i)];
    few.push_back(values({2, kTokens, kHeads, length}, x, 17 * i + 1));
    if (auto* weight = weight_of(inputs, i)) {
      auto shape =
          of_heads(*weight) ? mx::Shape{kHeads, length} : mx::Shape{length};
      few.push_back(values(std::move(shape), *weight, 17 * i + 2));
    }
  }
  few.push_back(array({kOffset}, mx::int32));
  if (has_freqs) {
    auto freqs = values({rotated_dims(inputs[0]) / 2}, inputs.back(), 3);
    few.push_back(mx::add(array(1.0f), mx::abs(freqs, s), s));
  }
  return few;
}

} // namespace mlx_norms
