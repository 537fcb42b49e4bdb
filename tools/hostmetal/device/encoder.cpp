// Copyright © 2026 mlx_norms contributors

#include "encoder.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "handlers.h"
#include "mlx/backend/cpu/encoder.h"

namespace hostmetal {

namespace {

// A member before MLX 0.32.4, then a function.
template <typename Data>
mx::allocator::Buffer buffer_of(const Data& data) {
  if constexpr (requires { data.buffer(); }) {
    return data.buffer();
  } else {
    return data.buffer;
  }
}

const char* address_of(mx::allocator::Buffer buffer) {
  return static_cast<const char*>(buffer.raw_ptr());
}

// Metal's limits.
constexpr int64_t kMaxBufferIndex = 30;
constexpr size_t kMaxBytes = 4096;
constexpr size_t kMaxThreadgroupMemory = 32 << 10;

std::atomic<size_t> n_pending{0};

// The elements before and after an array's first one, and after its last one.
std::pair<int64_t, int64_t> span(const mx::array& array) {
  if (array.size() == 0) {
    return {0, 0};
  }
  int64_t first = 0;
  int64_t last = 0;
  for (int i = 0; i < static_cast<int>(array.ndim()); i++) {
    auto reach = (array.shape(i) - 1) * array.strides(i);
    (reach < 0 ? first : last) += reach;
  }
  return {first, last + 1};
}

size_t volume(const std::array<size_t, 3>& size) {
  return size[0] * size[1] * size[2];
}

std::string text(const std::array<size_t, 3>& size) {
  return "(" + std::to_string(size[0]) + ", " + std::to_string(size[1]) + ", " +
      std::to_string(size[2]) + ")";
}

std::string buffer(int64_t index) {
  return "buffer " + std::to_string(index);
}

// A launch keeps no array alive, as Metal's command buffer does not.
void check_owners(const Launch& launch, const std::string& when) {
  for (auto& [index, bound] : launch.bindings) {
    if (bound.kind != BindingKind::Bytes && bound.owner.expired()) {
      refuse(
          launch.pipeline->kernel + ": the array of " + buffer(index) +
          " was freed " + when + ": hand it to add_temporary");
    }
  }
}

void run(const Launch& launch) {
  try {
    check_owners(launch, "before the launch had run");
    handlers().run(launch);
    check_owners(launch, "before the launch had run");
  } catch (const std::exception&) {
    // Recorded by refuse(); nobody could catch it here.
  }
  n_pending--;
}

} // namespace

void Encoder::begin(
    const char* primitive,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs) {
  evaluating_ = true;
  next_.pipeline = nullptr;
  primitive_ = primitive;
  arrays_[0] = &inputs;
  arrays_[1] = &outputs;
  for (auto& input : inputs) {
    inputs_.insert(address_of(input.buffer()));
  }
}

void Encoder::abandon() {
  evaluating_ = false;
  hazards_.end_if_full();
  fences_.abandon();
  outputs_.clear();
  inputs_.clear();
  owners_.clear();
  writers_.clear();
  launches_.clear();
}

void Encoder::submit() {
  for (auto& launch : launches_) {
    check_owners(launch, "when eval_gpu returned");
    for (auto& [index, bound] : launch.bindings) {
      bound.must_fill = bound.kind == BindingKind::Output && bound.dense &&
          !inputs_.contains(bound.address) && writers_[bound.address] == 1;
      bound.temporary = fences_.is_temporary(bound);
    }
  }
  fences_.end(primitive_, *arrays_[0], *arrays_[1]);
  for (auto& launch : launches_) {
    n_pending++;
    mx::cpu::get_command_encoder(stream_).dispatch(
        [launch = std::move(launch)] { run(launch); });
  }
  abandon();
}

std::string Encoder::kernel() const {
  return next_.pipeline ? next_.pipeline->kernel : "no kernel yet";
}

void Encoder::bind(Binding binding, int64_t index) {
  if (!evaluating_) {
    refuse(
        kernel() + ": " + buffer(index) +
        " is bound on a stream where no eval_gpu is running");
  }
  if (index < 0 || index > kMaxBufferIndex) {
    refuse(
        kernel() + ": " + buffer(index) + " is bound, and the last one is " +
        std::to_string(kMaxBufferIndex));
  }
  next_.stale.erase(index);
  next_.bindings[index] = std::move(binding);
}

void Encoder::bind(
    const mx::array& array,
    int index,
    int64_t offset,
    BindingKind kind) {
  if (!array.data_shared_ptr()) {
    refuse(kernel() + ": the array bound at " + buffer(index) + " has no data");
  }
  auto data = array.buffer();
  int64_t size = array.buffer_size();
  int64_t itemsize = array.itemsize();
  auto [first, last] = span(array);
  auto begin = array.offset() + first * itemsize;
  auto end = array.offset() + last * itemsize;
  auto start = array.offset() + offset;
  if (begin < 0 || end > size || start < 0 || start > size) {
    refuse(
        kernel() + ": the array bound at " + buffer(index) +
        " is not inside its allocation of " + std::to_string(size) + " bytes");
  }
  if (offset % itemsize != 0) {
    refuse(
        kernel() + ": " + buffer(index) + " is bound at offset " +
        std::to_string(offset) + ", which is not a multiple of " +
        std::to_string(itemsize) + " bytes");
  }
  Binding binding;
  binding.kind = kind;
  binding.address = static_cast<char*>(data.raw_ptr());
  binding.size = size;
  binding.offset = start;
  binding.begin = begin;
  binding.end = end;
  binding.dense = begin + static_cast<int64_t>(array.nbytes()) == end;
  binding.owner = array.data_shared_ptr();
  binding.fresh = kind == BindingKind::Output ||
      array.status() == mx::array::Status::unscheduled;
  owners_[binding.address] = binding.owner;
  bind(std::move(binding), index);
}

void Encoder::bind(const MTL::Buffer* buffer, int index, int64_t offset) {
  mx::allocator::Buffer data(const_cast<MTL::Buffer*>(buffer));
  int64_t size = mx::allocator::allocator().size(data);
  if (offset < 0 || offset > size) {
    refuse(
        kernel() + ": " + hostmetal::buffer(index) + " is bound at offset " +
        std::to_string(offset) + " of an allocation of " +
        std::to_string(size) + " bytes");
  }
  Binding binding;
  binding.kind = BindingKind::Buffer;
  binding.address = static_cast<char*>(data.raw_ptr());
  binding.size = size;
  binding.offset = offset;
  binding.begin = offset;
  binding.end = size;
  binding.owner = owner_of(binding.address);
  if (binding.owner.expired()) {
    refuse(
        kernel() + ": " + hostmetal::buffer(index) +
        " is bound by set_buffer, of no array that this eval_gpu was given or "
        "has bound");
  }
  bind(std::move(binding), index);
}

// A raw buffer does not say whose it is.
std::weak_ptr<mx::array::Data> Encoder::owner_of(const char* address) const {
  for (auto* arrays : arrays_) {
    for (auto& array : *arrays) {
      auto& data = array.data_shared_ptr();
      if (data && buffer_of(*data).ptr() &&
          address_of(buffer_of(*data)) == address) {
        return data;
      }
    }
  }
  auto found = owners_.find(address);
  return found == owners_.end() ? std::weak_ptr<mx::array::Data>()
                                : found->second;
}

void Encoder::declare_output(const mx::array& array) {
  outputs_.insert(address_of(array.buffer()));
}

void Encoder::add_temporary(const mx::array& array) {
  if (!evaluating_) {
    refuse(
        kernel() +
        ": add_temporary is called on a stream where no eval_gpu is running");
  }
  if (!array.data_shared_ptr()) {
    refuse(kernel() + ": an array handed to add_temporary has no data");
  }
  fences_.add_temporary(array);
}

// Metal keeps what was bound for another pipeline, and a kernel that expects
// more reads it by mistake.
void Encoder::set_pipeline(Pipeline& pipeline) {
  for (auto& [index, _] : next_.bindings) {
    next_.stale.insert(index);
  }
  next_.bindings.clear();
  next_.threadgroup_memory.clear();
  next_.pipeline = pipeline.shared_from_this();
}

void Encoder::set_threadgroup_memory(size_t length, int64_t index) {
  if (index < 0 || index > kMaxBufferIndex) {
    refuse(
        kernel() + ": threadgroup memory is set at index " +
        std::to_string(index) + ", and the last one is " +
        std::to_string(kMaxBufferIndex));
  }
  if (length == 0 || length % 16 != 0 || length > kMaxThreadgroupMemory) {
    refuse(
        kernel() + ": threadgroup memory of " + std::to_string(length) +
        " bytes is not a multiple of 16 up to " +
        std::to_string(kMaxThreadgroupMemory));
  }
  next_.threadgroup_memory[index] = length;
}

uint64_t Encoder::receive(
    std::string_view selector,
    const Arguments& arguments,
    void* result) {
  if (selector == "setComputePipelineState:") {
    set_pipeline(
        *Object::from<Pipeline>(reinterpret_cast<void*>(arguments[0])));
  } else if (selector == "setBytes:length:atIndex:") {
    auto* bytes = reinterpret_cast<const char*>(arguments[0]);
    auto length = arguments[1];
    auto index = static_cast<int64_t>(arguments[2]);
    if (length == 0 || length > kMaxBytes) {
      refuse(
          kernel() + ": " + std::to_string(length) + " bytes are set at " +
          buffer(index) + ", and Metal takes 1 to " +
          std::to_string(kMaxBytes));
    }
    Binding binding;
    binding.kind = BindingKind::Bytes;
    binding.bytes.assign(bytes, length);
    bind(std::move(binding), index);
  } else if (selector == "setThreadgroupMemoryLength:atIndex:") {
    set_threadgroup_memory(arguments[0], static_cast<int64_t>(arguments[1]));
  } else {
    return Object::receive(selector, arguments, result);
  }
  return 0;
}

std::set<int> Encoder::declared_outputs() const {
  std::set<int> declared;
  for (auto& [index, bound] : next_.bindings) {
    if (bound.kind == BindingKind::Output || outputs_.contains(bound.address)) {
      declared.insert(index);
    }
  }
  return declared;
}

void Encoder::mark_initialized(const std::set<int>& written) {
  for (auto& [index, bound] : next_.bindings) {
    bound.initialized = !bound.fresh || inputs_.contains(bound.address) ||
        writers_.contains(bound.address) || fences_.has_written(bound);
  }
  std::set<const char*> allocations;
  for (auto index : written) {
    allocations.insert(next_.bindings.at(index).address);
  }
  for (auto* allocation : allocations) {
    writers_[allocation]++;
  }
}

void Encoder::set_concurrent(bool concurrent, bool first) {
  concurrent_contexts_ += first;
  concurrent_context_ = concurrent ? concurrent_contexts_ : 0;
}

void Encoder::launch(MTL::Size grid, MTL::Size group, bool in_threads) {
  if (!next_.pipeline) {
    refuse("a launch has no pipeline set in this eval_gpu");
  }
  next_.grid = {grid.width, grid.height, grid.depth};
  next_.group = {group.width, group.height, group.depth};
  next_.in_threads = in_threads;
  next_.stream = stream_.index;
  if (volume(next_.grid) == 0) {
    refuse(kernel() + ": the grid " + text(next_.grid) + " is empty");
  }
  auto threads = volume(next_.group);
  auto limit = handlers().thread_limit(*next_.pipeline);
  if (threads == 0 || threads > limit) {
    refuse(
        kernel() + ": a threadgroup of " + text(next_.group) +
        " threads, and the pipeline takes 1 to " + std::to_string(limit));
  }
  size_t memory = 0;
  for (auto& [_, length] : next_.threadgroup_memory) {
    memory += length;
  }
  if (memory > kMaxThreadgroupMemory) {
    refuse(
        kernel() + ": threadgroup memory of " + std::to_string(memory) +
        " bytes in all is over " + std::to_string(kMaxThreadgroupMemory));
  }

  auto declared = declared_outputs();
  auto indices = handlers().encode(next_);
  std::set<int> written(indices.begin(), indices.end());
  for (auto index : written) {
    if (!declared.contains(index)) {
      refuse(
          kernel() + ": it writes " + buffer(index) +
          ", which was not bound by set_output_array");
    }
  }
  hazards_.add(next_, written, declared, concurrent_context_);
  fences_.add(next_, written);
  mark_initialized(written);
  launches_.push_back(next_);
  outputs_.clear();
}

Encoder& encoder(mx::Stream stream) {
  static std::mutex mutex;
  static auto* encoders =
      new std::unordered_map<int, std::unique_ptr<Encoder>>();
  mx::cpu::get_command_encoder(stream); // throws if this thread has no such one
  std::lock_guard lock(mutex);
  auto& found = (*encoders)[stream.index];
  if (!found) {
    found = std::make_unique<Encoder>(mx::metal::device(stream.device), stream);
  }
  return *found;
}

size_t pending() {
  return n_pending;
}

} // namespace hostmetal
