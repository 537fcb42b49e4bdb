// Copyright © 2026 mlx_norms contributors

#pragma once

#include <set>
#include <string>
#include <vector>

#include "fences.h"
#include "hazards.h"
#include "launch.h"
#include "mlx/backend/metal/device.h"
#include "objc.h"

namespace hostmetal {

// MLX's encoder of a CPU stream, and the MTL::ComputeCommandEncoder behind it:
// records launches while a primitive's eval_gpu runs.
class Encoder : public mx::metal::CommandEncoder, public Object {
 public:
  Encoder(mx::metal::Device& device, mx::Stream stream)
      : CommandEncoder(device, stream.index, device.residency_sets()),
        stream_(stream) {}

  mx::Stream stream() const {
    return stream_;
  }

  // Around a primitive's eval_gpu of these arrays. `submit` gives its launches
  // to the stream; `abandon` forgets them.
  void begin(
      const char* primitive,
      const std::vector<mx::array>& inputs,
      const std::vector<mx::array>& outputs);
  void submit();
  void abandon();

  void
  bind(const mx::array& array, int index, int64_t offset, BindingKind kind);
  void bind(const MTL::Buffer* buffer, int index, int64_t offset);
  void declare_output(const mx::array& array);
  void add_temporary(const mx::array& array);
  // Whether what follows is in a concurrent context, and the first in it.
  void set_concurrent(bool concurrent, bool first);
  void barrier() {
    hazards_.barrier();
  }
  void launch(MTL::Size grid, MTL::Size group, bool in_threads);

  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override;

 private:
  std::string kernel() const;
  void bind(Binding binding, int64_t index);
  void set_pipeline(Pipeline& pipeline);
  void set_threadgroup_memory(size_t length, int64_t index);
  std::set<int> declared_outputs() const;
  std::weak_ptr<mx::array::Data> owner_of(const char* address) const;
  void mark_initialized(const std::set<int>& written);

  mx::Stream stream_;
  bool evaluating_{false};
  // What the next launch finds.
  Launch next_;
  std::set<const char*> outputs_; // declared without binding them
  size_t concurrent_contexts_{0};
  size_t concurrent_context_{0};
  Hazards hazards_;
  Fences fences_;

  // Of the eval_gpu that runs: its name and arrays, the allocations of its
  // inputs, and who owns those that were bound.
  const char* primitive_;
  const std::vector<mx::array>* arrays_[2];
  std::set<const char*> inputs_;
  std::map<const char*, std::weak_ptr<mx::array::Data>> owners_;
  std::map<const char*, int> writers_; // launches that write an allocation
  std::vector<Launch> launches_;
};

// The encoder of a CPU stream.
Encoder& encoder(mx::Stream stream);

// Launches that were submitted and have not run.
size_t pending();

} // namespace hostmetal
