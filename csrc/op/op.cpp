// Copyright © 2026 mlx_norms contributors

#include "csrc/op/op.h"

#include <stdexcept>
#include <string>

#include "csrc/common/derivatives.h"
#include "csrc/common/sum.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

// What this returns is called while the op is there.
Function steps_of(const Op& op, mx::Stream stream) {
  return [&op, stream](const Arrays& inputs) {
    return for_any_size(op.steps(inputs, stream), {&inputs}, stream);
  };
}

} // namespace

mx::Shape Op::shape(const Arrays& inputs, size_t) const {
  return inputs[0].shape();
}

Arrays Op::fallback(const Arrays&, mx::Stream) const {
  throw std::logic_error(std::string(name()) + " has no fallback.");
}

void Op::eval_cpu(const Arrays&, Arrays&, mx::Stream) const {
  throw std::logic_error(std::string(name()) + " is a GPU's alone.");
}

Arrays Op::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums,
    mx::Stream s) const {
  return jvp_of(steps_of(*this, s), primals, tangents, argnums);
}

Arrays Op::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&,
    mx::Stream s) const {
  return vjp_of(steps_of(*this, s), primals, cotangents, argnums);
}

Arrays Op::mapped(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  auto [op, batch] = batched(inputs, axes, s);
  return op ? make(std::move(op), std::move(batch), s)
            : mx::vmap(steps_of(*this, s), axes)(inputs);
}

} // namespace mlx_norms
