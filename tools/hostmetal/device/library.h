// Copyright © 2026 mlx_norms contributors

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mlx/backend/common/metal_kernel.h"
#include "objc.h"

namespace hostmetal {

struct Library;

// The value of a function constant, as the plugin gave it to MLX.
struct Constant {
  size_t index;
  size_t type; // MTL::DataType
  std::string value;

  bool operator==(const Constant&) const = default;
};

// A kernel of a library with its function constants.
struct Pipeline : Object, std::enable_shared_from_this<Pipeline> {
  std::shared_ptr<Library> library;
  std::string kernel;
  std::string hash_name;
  std::vector<Constant> constants;

  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override;
};

// MSL text: compiled at run time, or what a metallib was built from.
struct Library : Object, std::enable_shared_from_this<Library> {
  std::string name;
  std::string text;
  mlx::core::CompileOptions options;
  bool compiled_ahead = false;
  std::map<std::string, std::shared_ptr<Pipeline>> pipelines;

  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override;
};

// The contents of a metallib where MLX looks for it, but that MLX's own folder
// is not searched: MSL text here.
std::string read_metallib(const std::string& name, const std::string& path);

// What MLX would return: what it has by the name, or by the hash name, else the
// one wanted. Refuses it if MLX has something else there.
Library* find_or_add(std::shared_ptr<Library> wanted);
Pipeline* find_or_add(std::shared_ptr<Pipeline> wanted);

} // namespace hostmetal
