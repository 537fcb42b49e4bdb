// Copyright © 2026 mlx_norms contributors

// The members of MLX's CommandEncoder that encode. Those that end, commit or
// wait for a command buffer are MLX's own affair: a plugin that calls them does
// not load.

#include "encoder.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx::core::metal {

using hostmetal::BindingKind;
using hostmetal::Encoder;

namespace {

Encoder& self(CommandEncoder* encoder) {
  return *static_cast<Encoder*>(encoder);
}

} // namespace

CommandEncoder::CommandEncoder(
    Device& device,
    int,
    ResidencySets& residency_sets)
    : device_(device),
      residency_sets_(residency_sets) {}

CommandEncoder::~CommandEncoder() = default;

MTL::ComputeCommandEncoder* CommandEncoder::get_command_encoder() {
  return self(this).as<MTL::ComputeCommandEncoder>();
}

void CommandEncoder::set_buffer(
    const MTL::Buffer* buffer,
    int index,
    int64_t offset) {
  self(this).bind(buffer, index, offset);
}

void CommandEncoder::set_input_array(
    const array& a,
    int index,
    int64_t offset) {
  self(this).bind(a, index, offset, BindingKind::Input);
}

void CommandEncoder::set_output_array(array& a, int index, int64_t offset) {
  self(this).bind(a, index, offset, BindingKind::Output);
}

void CommandEncoder::register_output_array(const array& a) {
  self(this).declare_output(a);
}

void CommandEncoder::add_temporary(array a) {
  self(this).add_temporary(a);
  cpu::get_command_encoder(self(this).stream()).add_temporary(std::move(a));
}

void CommandEncoder::add_temporaries(std::vector<array> arrays) {
  for (auto& a : arrays) {
    add_temporary(std::move(a));
  }
}

void CommandEncoder::dispatch_threadgroups(MTL::Size grid, MTL::Size group) {
  maybeInsertBarrier();
  self(this).launch(grid, group, false);
}

void CommandEncoder::dispatch_threads(MTL::Size grid, MTL::Size group) {
  maybeInsertBarrier();
  self(this).launch(grid, group, true);
}

void CommandEncoder::maybeInsertBarrier() {
  // The end of a concurrent context empties this set.
  bool first = concurrent_ && concurrent_outputs_.insert(nullptr).second;
  self(this).set_concurrent(concurrent_, first);
}

void CommandEncoder::barrier() {
  self(this).barrier();
}

CommandEncoder& get_command_encoder(Stream stream) {
  return hostmetal::encoder(stream);
}

} // namespace mlx::core::metal
