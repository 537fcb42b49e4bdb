// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/metal/library.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

#include <Foundation/Foundation.hpp>

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/metal/kernel_text.h"

namespace mlx_norms {

namespace {

namespace fs = std::filesystem;

// Whether texts are compiled with Metal's own conversions of bfloat16, which
// nobody has timed.
bool native_bfloat() {
  static const bool asked = [] {
    auto* value = std::getenv("MLX_NORMS_NATIVE_BFLOAT");
    return value && std::string_view(value) == "1";
  }();
  return asked;
}

// What is compiled or loaded at once.
struct Part {
  std::once_flag once;
  MTL::Library* library = nullptr; // null if it cannot be built
  double seconds = 0;
  std::string failure;

  // MLX keeps libraries by name for the process.
  template <typename Get>
  const Part& build(const char* from, Get get) {
    std::call_once(once, [&] {
      auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
      auto started = std::chrono::steady_clock::now();
      try {
        library = get(mx::metal::device(mx::Device::gpu));
      } catch (const std::exception& e) {
        failure = std::string(from) + ": " + e.what() + "\n";
      }
      std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - started;
      seconds = took.count();
    });
    return *this;
  }
};

struct Parts {
  const LibraryText& text;
  Part metallib;
  Part rest; // kernels that need no instantiation
  std::deque<Part> instances;

  explicit Parts(const LibraryText& text)
      : text(text),
        instances(text.kernels.size()) {}

  // What the build puts beside the extension, if it can. Its library is null if
  // it is not there or does not load.
  const Part& loaded() {
    return metallib.build("metallib", [&](auto& device) -> MTL::Library* {
      Dl_info info;
      if (native_bfloat() ||
          !dladdr(reinterpret_cast<void*>(&kernel_libraries), &info)) {
        return nullptr;
      }
      auto file = fs::path(info.dli_fname).parent_path() /
          (std::string(text.file) + ".metallib");
      std::error_code none;
      return fs::exists(file, none)
          ? device.get_library(text.file, file.string())
          : nullptr;
    });
  }

  const Part& compiled(size_t i) {
    const auto& kernel = text.kernels[i];
    std::string_view instantiation = kernel.instantiation;
    bool instance = !instantiation.empty();
    auto name = std::string(text.file) +
        (instance ? std::string("_") + kernel.name : "");
    std::string define =
        native_bfloat() ? "#define MLX_NORMS_NATIVE_BFLOAT\n" : "";
    return (instance ? instances[i] : rest).build("text", [&](auto& device) {
      return device.get_library(name, [&] {
        return define + text.text + std::string(instantiation) + "\n";
      });
    });
  }

  // Where kernel i is.
  const Part& of(size_t i) {
    return loaded().library ? metallib : compiled(i);
  }
};

std::deque<Parts>& all_parts() {
  static auto* all =
      new std::deque<Parts>(library_texts().begin(), library_texts().end());
  return *all;
}

} // namespace

MTL::Library* library_of(const KernelName& kernel) {
  using Place = std::pair<Parts*, size_t>;
  static const auto* places = [] {
    auto* places = new std::map<std::string_view, Place>();
    for (auto& parts : all_parts()) {
      for (size_t i = 0; i < parts.text.kernels.size(); ++i) {
        places->emplace(parts.text.kernels[i].name, Place(&parts, i));
      }
    }
    return places;
  }();
  auto name = kernel.text();
  auto place = places->find(name);
  if (place == places->end()) {
    throw KernelError("[mlx_norms] No library has a kernel " + name + ".");
  }
  auto [parts, i] = place->second;
  const auto& built = parts->of(i);
  if (!built.library) {
    throw KernelError(
        "[mlx_norms] Kernel " + name + " of library " + parts->text.name +
        " cannot be built: " + parts->metallib.failure + built.failure);
  }
  return built.library;
}

std::vector<KernelLibrary> kernel_libraries() {
  std::vector<KernelLibrary> all;
  for (auto& parts : all_parts()) {
    KernelLibrary found{.name = parts.text.name};
    const Part* last = nullptr; // kernels of one part follow each other
    auto add = [&](const Part& part) {
      if (&part != std::exchange(last, &part)) {
        found.seconds += part.seconds;
        bool said = found.failure.find(part.failure) != std::string::npos;
        found.failure += said ? "" : part.failure;
      }
    };
    add(parts.loaded());
    found.from_metallib = parts.metallib.library;
    for (size_t i = 0; i < parts.text.kernels.size(); ++i) {
      const auto& part = parts.of(i);
      add(part);
      found.kernels.emplace_back(parts.text.kernels[i].name, part.library);
    }
    all.push_back(std::move(found));
  }
  return all;
}

} // namespace mlx_norms
