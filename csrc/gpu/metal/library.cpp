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
#include "csrc/gpu/choices.h"
#include "csrc/gpu/metal/compiler.h"
#include "csrc/gpu/metal/kernel_text.h"

namespace mlx_norms {

namespace {

namespace fs = std::filesystem;

// Whether texts are compiled with Metal's own conversions of bfloat16, which
// nobody has timed.
bool native_bfloat() {
  static const bool asked = [] {
    if (auto* value = std::getenv("MLX_NORMS_NATIVE_BFLOAT")) {
      return std::string_view(value) == "1";
    }
    auto& device = mx::metal::device(mx::Device::gpu);
    return choices_of(device.get_architecture_gen()).native_bfloat == 1;
  }();
  return asked;
}

struct Built {
  MTL::Library* library = nullptr; // null: it cannot be built
  bool is_final = false;           // it would be the same another time
  double seconds = 0;
  std::string failure;
};

// What is compiled or loaded at once.
class LibraryPart {
 public:
  // MLX keeps libraries by name for the process.
  template <typename Get>
  Built build(const char* from, Get get) {
    std::lock_guard lock(mutex_);
    if (built_.is_final) {
      return built_;
    }
    auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    auto started = std::chrono::steady_clock::now();
    built_.is_final = true;
    built_.failure.clear();
    try {
      built_.library =
          ask_compiler([&] { return get(mx::metal::device(mx::Device::gpu)); });
    } catch (const std::exception& e) {
      built_.failure = std::string(from) + ": " + e.what() + "\n";
      built_.is_final = from == kMetallib || is_of_text(e.what());
    }
    std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - started;
    built_.seconds += took.count();
    return built_;
  }

  static constexpr const char* kMetallib = "metallib"; // not compiled here

 private:
  std::mutex mutex_;
  Built built_;
};

struct Parts {
  const LibraryText& text;
  LibraryPart metallib;
  LibraryPart rest; // kernels that need no instantiation
  std::deque<LibraryPart> instances;

  explicit Parts(const LibraryText& text)
      : text(text),
        instances(text.kernels.size()) {}

  // What the build puts beside the extension, if it can. Its library is null if
  // it is not there or does not load.
  Built loaded() {
    return metallib.build(
        LibraryPart::kMetallib, [&](auto& device) -> MTL::Library* {
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

  // That of kernel i's text.
  LibraryPart& part(size_t i) {
    bool is_instance = *text.kernels[i].instantiation;
    return is_instance ? instances[i] : rest;
  }

  Built compiled(size_t i) {
    const auto& kernel = text.kernels[i];
    std::string_view instantiation = kernel.instantiation;
    bool instance = !instantiation.empty();
    auto name = std::string(text.file) +
        (instance ? std::string("_") + kernel.name : "");
    std::string define =
        native_bfloat() ? "#define MLX_NORMS_NATIVE_BFLOAT\n" : "";
    return part(i).build("text", [&](auto& device) {
      return device.get_library(name, [&] {
        return define + text.text + std::string(instantiation) + "\n";
      });
    });
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
  auto loaded = parts->loaded();
  if (loaded.library) {
    return loaded.library;
  }
  auto built = parts->compiled(i);
  if (!built.library) {
    throw UnbuiltKernel(
        "[mlx_norms] Kernel " + name + " of library " + parts->text.name +
            " cannot be built: " + loaded.failure + built.failure,
        /* lasting= */ built.is_final);
  }
  return built.library;
}

std::vector<KernelLibrary> kernel_libraries() {
  std::vector<KernelLibrary> all;
  for (auto& parts : all_parts()) {
    KernelLibrary found{.name = parts.text.name};
    auto add = [&](const Built& built) {
      found.seconds += built.seconds;
      bool said = found.failure.find(built.failure) != std::string::npos;
      found.failure += said ? "" : built.failure;
    };
    auto loaded = parts.loaded();
    add(loaded);
    found.from_metallib = loaded.library;
    const LibraryPart* last = nullptr; // kernels of one part follow each other
    for (size_t i = 0; i < parts.text.kernels.size(); ++i) {
      auto built = loaded;
      if (!loaded.library) {
        built = parts.compiled(i);
        if (auto* part = &parts.part(i); part != std::exchange(last, part)) {
          add(built);
        }
      }
      found.kernels.emplace_back(parts.text.kernels[i].name, built.library);
    }
    all.push_back(std::move(found));
  }
  return all;
}

} // namespace mlx_norms
