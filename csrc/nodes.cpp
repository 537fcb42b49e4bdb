// Copyright © 2026 mlx_norms contributors

#include "csrc/nodes.h"

#include "csrc/backend.h"
#include "csrc/compose.h"
#include "csrc/cpu/isa.h"
#include "csrc/self_check.h"

namespace mlx_norms {

Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  auto backend = backend_of(stream);
  if (backend == Backend::Cpu) {
    cpu::isa(); // refuses an instruction set that this machine lacks
  }
  bool composed = backend == Backend::Composed ||
      (backend == Backend::Metal && !agrees(spec, dtype, inputs, stream));
  Arrays outputs;
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (size_t i = 0; i < inputs.size(); i += spec.n_inputs()) {
    NormInputs in(spec, &inputs[i]);
    if (composed) {
      auto group = compose_norm(spec, dtype, in, stream);
      outputs.insert(outputs.end(), group.begin(), group.end());
      continue;
    }
    shapes.insert(shapes.end(), spec.n_outputs(), in.x.shape());
    dtypes.push_back(dtype);
    if (spec.residual) {
      dtypes.push_back(mx::result_type(in.x, *in.residual));
    }
  }
  if (composed) {
    return outputs;
  }
  auto node = std::make_shared<Norm>(stream, spec, dtype);
  return array::make_arrays(
      std::move(shapes), dtypes, std::move(node), std::move(inputs));
}

Arrays make_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream) {
  if (backend_of(stream) == Backend::Metal &&
      !agrees(spec, dtypes, inputs, stream)) {
    NormVJPInputs in(spec.norm, inputs.data());
    return compose_norm_vjp(spec, dtypes, in, stream);
  }
  auto node = std::make_shared<NormVJP>(stream, spec, dtypes);
  auto shapes = node->output_shapes(inputs);
  return array::make_arrays(
      std::move(shapes), dtypes, std::move(node), std::move(inputs));
}

} // namespace mlx_norms
