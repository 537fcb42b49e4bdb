// Copyright © 2026 mlx_norms contributors

// MLX's metal::Device over a GPU that is not there.

#include <algorithm>

#include "handlers.h"
#include "library.h"
#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/utils.h"

namespace hostmetal {

namespace {

struct Gpu : Object {};

size_t size_of(MTL::DataType type) {
  switch (type) {
    case MTL::DataTypeBool:
    case MTL::DataTypeChar:
    case MTL::DataTypeUChar:
      return 1;
    case MTL::DataTypeShort:
    case MTL::DataTypeUShort:
    case MTL::DataTypeHalf:
      return 2;
    case MTL::DataTypeInt:
    case MTL::DataTypeUInt:
    case MTL::DataTypeFloat:
      return 4;
    default:
      refuse("no function constant has MTL::DataType " + std::to_string(type));
  }
}

std::vector<Constant> copy_constants(
    const mlx::core::metal::MTLFCList& constants) {
  std::vector<Constant> copies;
  for (auto& [value, type, index] : constants) {
    auto* bytes = static_cast<const char*>(value);
    copies.push_back({index, type, {bytes, bytes + size_of(type)}});
  }
  std::ranges::sort(copies, {}, &Constant::index);
  return copies;
}

} // namespace

} // namespace hostmetal

namespace mlx::core::metal {

using hostmetal::Library;
using hostmetal::Object;
using hostmetal::Pipeline;
using hostmetal::refuse;

// Members of the classes below; nothing is resident anywhere.
ResidencySets::ResidencySets(MTL::Device*) {}
ResidencySets::~ResidencySets() = default;

namespace {

// A setting, as an M1's if none is given: what ours launches depends on it.
int generation() {
  const char* given = std::getenv("HOSTMETAL_GENERATION");
  return given ? std::atoi(given) : 13;
}

} // namespace

Device::Device()
    : device_(NS::TransferPtr((new hostmetal::Gpu)->as<MTL::Device>())),
      residency_sets_(nullptr),
      arch_("applegpu_g" + std::to_string(generation()) + "g"),
      arch_gen_(generation()),
      max_ops_per_buffer_(50),
      max_mb_per_buffer_(50) {}

Device::~Device() = default;

MTL::Library* Device::get_library(
    const std::string& name,
    const std::string& path) {
  auto library = std::make_shared<Library>();
  library->name = name;
  library->text = hostmetal::read_metallib(name, path);
  library->compiled_ahead = true;
  std::lock_guard lock(library_mtx_);
  return hostmetal::find_or_add(std::move(library))->as<MTL::Library>();
}

MTL::Library* Device::get_library(
    const std::string& name,
    const CompileOptions& options,
    const std::function<std::string(void)>& builder) {
  auto library = std::make_shared<Library>();
  library->name = name;
  library->text = builder();
  library->options = options;
  std::lock_guard lock(library_mtx_);
  return hostmetal::find_or_add(std::move(library))->as<MTL::Library>();
}

MTL::ComputePipelineState* Device::get_kernel(
    const std::string& kernel,
    MTL::Library* library,
    const std::string& hash_name,
    const MTLFCList& constants,
    const std::vector<MTL::Function*>& linked_functions) {
  if (!linked_functions.empty()) {
    refuse(kernel + ": the simulator links no functions");
  }
  auto pipeline = std::make_shared<Pipeline>();
  pipeline->library = Object::from<Library>(library)->shared_from_this();
  pipeline->kernel = kernel;
  pipeline->hash_name = hash_name;
  pipeline->constants = hostmetal::copy_constants(constants);
  std::lock_guard lock(kernel_mtx_);
  return hostmetal::find_or_add(std::move(pipeline))
      ->as<MTL::ComputePipelineState>();
}

MTL::ComputePipelineState* Device::get_kernel(
    const std::string& kernel,
    const std::string&,
    const MTLFCList&,
    const std::vector<MTL::Function*>&) {
  refuse(kernel + ": MLX's own metallib is not on this machine");
}

Device& device(mlx::core::Device) {
  static auto* device = new Device;
  return *device;
}

} // namespace mlx::core::metal
