// Copyright © 2026 mlx_norms contributors

#include "csrc/norm.h"

#include <algorithm>

#include "csrc/compose.h"

namespace mlx_norms {

namespace {

// f as a function of the arguments in argnums alone.
Function
fix_others(Function f, const Arrays& inputs, const std::vector<int>& argnums) {
  return [f = std::move(f), inputs, argnums](const Arrays& free) {
    auto all = inputs;
    for (size_t i = 0; i < argnums.size(); ++i) {
      all[argnums[i]] = free[i];
    }
    return f(all);
  };
}

Arrays select(const Arrays& arrays, const std::vector<int>& indices) {
  Arrays selected;
  for (auto i : indices) {
    selected.push_back(arrays[i]);
  }
  return selected;
}

int batch_size(const Arrays& inputs, const std::vector<int>& axes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (axes[i] >= 0) {
      return inputs[i].shape(axes[i]);
    }
  }
  return 1;
}

// a with a batch axis of this size in front: moved there, or broadcast.
mx::array batched(const mx::array& a, int axis, int size, mx::Stream s) {
  if (axis >= 0) {
    return axis == 0 ? a : mx::moveaxis(a, axis, 0, s);
  }
  auto shape = a.shape();
  shape.insert(shape.begin(), size);
  return mx::broadcast_to(a, shape, s);
}

// The kernels take float32, float16 and bfloat16.
mx::array kernel_dtype(const mx::array& a, mx::Dtype dtype, mx::Stream s) {
  return a.dtype() == mx::float32 || a.dtype() == mx::float16 ||
          a.dtype() == mx::bfloat16
      ? a
      : mx::astype(a, dtype, s);
}

} // namespace

Arrays ComposedPrimitive::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = [this](const Arrays& inputs) { return compose(inputs); };
  return mx::jvp(
             fix_others(f, primals, argnums),
             select(primals, argnums),
             tangents)
      .second;
}

Arrays ComposedPrimitive::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  auto f = [this](const Arrays& inputs) { return compose(inputs); };
  return mx::vjp(
             fix_others(f, primals, argnums),
             select(primals, argnums),
             cotangents)
      .second;
}

std::pair<Arrays, std::vector<int>> ComposedPrimitive::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto f = [this](const Arrays& in) { return compose(in); };
  auto outputs = mx::vmap(f, axes)(inputs);
  return {outputs, std::vector<int>(outputs.size(), 0)};
}

void ComposedPrimitive::eval_gpu(const Arrays&, Arrays&) {
  throw std::runtime_error(
      std::string("[") + name() + "] has no kernel for this GPU.");
}

Arrays Norm::compose(const Arrays& inputs) const {
  Arrays outputs;
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    auto group = compose_norm(
        spec_,
        dtype_,
        NormInputs(spec_, &inputs[i]),
        const_cast<Norm*>(this)->stream());
    outputs.insert(outputs.end(), group.begin(), group.end());
  }
  return outputs;
}

Arrays Norm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  auto wanted = [&](size_t i) {
    return std::find(argnums.begin(), argnums.end(), static_cast<int>(i)) !=
        argnums.end();
  };
  std::vector<std::optional<mx::array>> gradients(primals.size());
  size_t in = 0, out = 0;
  for (; in < primals.size(); in += spec_.n_inputs()) {
    auto x = in;
    auto residual = x + spec_.residual;
    auto weight = residual + spec_.weight;
    auto bias = weight + spec_.bias;

    NormVJPSpec spec{.norm = spec_};
    spec.input = wanted(x) || (spec_.residual && wanted(residual));
    spec.weight = spec_.weight && wanted(weight);
    spec.bias = spec_.bias && wanted(bias);

    const auto& s = spec_.residual ? outputs[out + 1] : primals[x];
    Arrays inputs{s};
    if (spec_.weight) {
      inputs.push_back(primals[weight]);
    }
    inputs.push_back(kernel_dtype(cotangents[out], dtype_, stream()));
    if (spec_.residual) {
      inputs.push_back(kernel_dtype(cotangents[out + 1], s.dtype(), stream()));
    }
    out += spec_.n_outputs();

    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    auto want = [&](bool flag, const mx::array& like) {
      if (flag) {
        shapes.push_back(like.shape());
        dtypes.push_back(like.dtype());
      }
    };
    want(spec.input, s);
    want(spec.weight, primals[weight]);
    want(spec.bias, primals[bias]);
    if (shapes.empty()) {
      continue;
    }
    auto results = mx::array::make_arrays(
        std::move(shapes),
        dtypes,
        std::make_shared<NormVJP>(stream(), spec, dtypes),
        inputs);
    auto next = results.begin();
    if (spec.input) {
      gradients[x] = mx::astype(*next, primals[x].dtype(), stream());
      if (spec_.residual) {
        gradients[residual] =
            mx::astype(*next, primals[residual].dtype(), stream());
      }
      ++next;
    }
    if (spec.weight) {
      gradients[weight] = *next++;
    }
    if (spec.bias) {
      gradients[bias] = *next++;
    }
  }
  Arrays selected;
  for (auto i : argnums) {
    selected.push_back(*gradients[i]);
  }
  return selected;
}

std::pair<Arrays, std::vector<int>> Norm::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto size = batch_size(inputs, axes);
  auto group_inputs = inputs;
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    size_t n_rows_inputs = 1 + spec_.residual;
    for (size_t j = 0; j < static_cast<size_t>(spec_.n_inputs()); ++j) {
      if (j < n_rows_inputs) {
        group_inputs[i + j] =
            batched(inputs[i + j], axes[i + j], size, stream());
      } else if (axes[i + j] >= 0) {
        return ComposedPrimitive::vmap(inputs, axes);
      }
    }
  }
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    NormInputs in(spec_, &group_inputs[i]);
    shapes.push_back(in.x.shape());
    dtypes.push_back(dtype_);
    if (spec_.residual) {
      shapes.push_back(in.x.shape());
      dtypes.push_back(mx::result_type(in.x, *in.residual));
    }
  }
  auto outputs = mx::array::make_arrays(
      std::move(shapes),
      dtypes,
      std::make_shared<Norm>(stream(), spec_, dtype_),
      group_inputs);
  return {outputs, std::vector<int>(outputs.size(), 0)};
}

const char* Norm::name() const {
  if (spec_.residual) {
    return spec_.centre ? "mlx_norms::AddLayerNorm" : "mlx_norms::AddRMSNorm";
  }
  return spec_.centre ? "mlx_norms::LayerNorm" : "mlx_norms::RMSNorm";
}

bool Norm::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const Norm&>(other);
  return spec_ == o.spec_ && dtype_ == o.dtype_;
}

std::vector<mx::Shape> Norm::output_shapes(const Arrays& inputs) {
  std::vector<mx::Shape> shapes;
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    shapes.insert(shapes.end(), spec_.n_outputs(), inputs[i].shape());
  }
  return shapes;
}

Arrays NormVJP::compose(const Arrays& inputs) const {
  return compose_norm_vjp(
      spec_,
      dtypes_,
      NormVJPInputs(spec_.norm, inputs.data()),
      const_cast<NormVJP*>(this)->stream());
}

std::pair<Arrays, std::vector<int>> NormVJP::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  // A gradient of the weight or bias is summed over the rows of its own example
  // only: the kernel, which sums over all rows, has no such form.
  bool weight_batched = spec_.norm.weight && axes[1] >= 0;
  if (weight_batched || spec_.weight || spec_.bias) {
    return ComposedPrimitive::vmap(inputs, axes);
  }
  auto size = batch_size(inputs, axes);
  auto batch = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!(spec_.norm.weight && i == 1)) {
      batch[i] = batched(inputs[i], axes[i], size, stream());
    }
  }
  auto shape = batch[0].shape();
  return {
      {mx::array(
          std::move(shape),
          dtypes_[0],
          std::make_shared<NormVJP>(stream(), spec_, dtypes_),
          std::move(batch))},
      {0}};
}

bool NormVJP::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const NormVJP&>(other);
  return spec_ == o.spec_ && dtypes_ == o.dtypes_;
}

std::vector<mx::Shape> NormVJP::output_shapes(const Arrays& inputs) {
  NormVJPInputs in(spec_.norm, inputs.data());
  std::vector<mx::Shape> shapes;
  if (spec_.input) {
    shapes.push_back(in.s.shape());
  }
  if (spec_.weight) {
    shapes.push_back(in.weight->shape());
  }
  if (spec_.bias) {
    shapes.push_back({in.s.shape(-1)});
  }
  return shapes;
}

} // namespace mlx_norms
