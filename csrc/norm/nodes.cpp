// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/nodes.h"

#include "csrc/common/backend.h"
#include "csrc/cpu/settings.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/self_check.h"

namespace mlx_norms {

bool has_kernel(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  if (backend_of(stream) == Backend::Cpu) {
    cpu::check_settings();
  }
  return runs_kernels(
      stream, [&] { return agrees(spec, dtype, inputs, stream); });
}

void make_siblings(Arrays& outputs) {
  if (outputs.size() == 1) {
    return;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    Arrays others;
    others.reserve(outputs.size() - 1);
    others.insert(others.end(), outputs.begin(), outputs.begin() + i);
    others.insert(others.end(), outputs.begin() + i + 1, outputs.end());
    outputs[i].set_siblings(std::move(others), i);
  }
}

namespace {

// The outputs of a node whose inputs have been checked.
Arrays outputs_of(std::shared_ptr<Norm> node, Arrays inputs) {
  const auto& spec = node->spec();
  size_t n_inputs = spec.n_inputs();
  size_t n_outputs = inputs.size() / n_inputs * spec.n_outputs();
  Arrays outputs;
  outputs.reserve(n_outputs);
  // The vector itself is moved to the last output; its elements stay in place.
  auto add = [&](const array& like, mx::Dtype dtype) {
    bool last = outputs.size() + 1 == n_outputs;
    outputs.emplace_back(
        like.shape(), dtype, node, last ? std::move(inputs) : inputs);
  };
  auto* first = inputs.data();
  auto* end = first + inputs.size();
  for (; first != end; first += n_inputs) {
    NormInputs in(spec, first);
    add(in.x, node->dtype());
    if (in.residual) {
      add(in.x, mx::result_type(in.x, *in.residual));
    }
  }
  make_siblings(outputs);
  return outputs;
}

} // namespace

Arrays norm_node(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<Norm>(stream, spec, dtype);
  node->check_shapes(inputs);
  return outputs_of(std::move(node), std::move(inputs));
}

Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  if (!has_kernel(spec, dtype, inputs, stream)) {
    return fallback_norms(spec, dtype, inputs, stream);
  }
  auto node = std::make_shared<Norm>(stream, spec, dtype);
  return outputs_of(std::move(node), std::move(inputs));
}

Arrays make_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream) {
  auto kernel_agrees = [&] { return agrees(spec, dtypes, inputs, stream); };
  if (!runs_kernels(stream, kernel_agrees)) {
    NormVJPInputs in(spec.norm, inputs.data());
    return fallback_norm_vjp(spec, dtypes, in, stream);
  }
  return norm_vjp_node(spec, dtypes, std::move(inputs), stream);
}

NormGradients norm_gradients(
    const NormVJPSpec& spec,
    const NormVJPInputs& in,
    const ParameterDtypes& of,
    mx::Stream stream) {
  std::vector<mx::Dtype> dtypes;
  auto want = [&](bool wanted, mx::Dtype dtype) {
    if (wanted) {
      dtypes.push_back(dtype);
    }
  };
  want(spec.input, in.s.dtype());
  want(spec.gate, of.gate);
  want(spec.weight, of.weight);
  want(spec.bias, of.bias);
  NormGradients gradients;
  if (dtypes.empty()) {
    return gradients;
  }
  auto results = make_norm_vjp(spec, dtypes, in.arrays(), stream);
  auto next = results.begin();
  auto take = [&](bool wanted, OptionalArray& gradient) {
    if (wanted) {
      gradient = *next++;
    }
  };
  take(spec.input, gradients.input);
  take(spec.gate, gradients.gate);
  take(spec.weight, gradients.weight);
  take(spec.bias, gradients.bias);
  return gradients;
}

Arrays norm_vjp_node(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<NormVJP>(stream, spec, dtypes);
  auto shapes = node->output_shapes(inputs);
  return array::make_arrays(
      std::move(shapes), dtypes, std::move(node), std::move(inputs));
}

} // namespace mlx_norms
