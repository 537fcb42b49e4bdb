// Copyright © 2026 mlx_norms contributors

#include "csrc/nodes.h"

#include "csrc/backend.h"
#include "csrc/compose.h"
#include "csrc/cpu/isa.h"
#include "csrc/self_check.h"

namespace mlx_norms {

bool has_kernel(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  switch (backend_of(stream)) {
    case Backend::Cpu:
      cpu::isa(); // refuses an instruction set that this machine lacks
      return true;
    case Backend::Metal:
      return agrees(spec, dtype, inputs, stream);
    case Backend::Cuda:
      return true;
  }
  return false;
}

Arrays norm_node(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<Norm>(stream, spec, dtype);
  auto shapes = node->output_shapes(inputs);
  auto dtypes = node->output_dtypes(inputs);
  return array::make_arrays(
      std::move(shapes), dtypes, std::move(node), std::move(inputs));
}

Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  return has_kernel(spec, dtype, inputs, stream)
      ? norm_node(spec, dtype, std::move(inputs), stream)
      : compose_norms(spec, dtype, inputs, stream);
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
