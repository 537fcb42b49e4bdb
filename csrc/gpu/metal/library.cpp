// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/metal/library.h"

#include <dlfcn.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <string_view>

#include <Foundation/Foundation.hpp>

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/metal/kernel_text.h"

namespace mlx_norms {

namespace {

namespace fs = std::filesystem;

// The metallib that the build puts beside the extension, if it can.
fs::path metallib_of(const LibraryText& text) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&kernel_libraries), &info)) {
    return {};
  }
  auto folder = fs::path(info.dli_fname).parent_path();
  return folder / (std::string(text.file) + ".metallib");
}

// MLX keeps libraries by name for the process.
KernelLibrary build(const LibraryText& text) {
  auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  auto& device = mx::metal::device(mx::Device::gpu);
  KernelLibrary built{.name = text.name};
  auto load = [&](const char* from, auto get) {
    try {
      built.library = get();
    } catch (const std::exception& e) {
      built.failure += std::string(from) + ": " + e.what() + "\n";
    }
  };
  auto started = std::chrono::steady_clock::now();
  auto metallib = metallib_of(text);
  std::error_code none;
  if (fs::exists(metallib, none)) {
    load("metallib", [&] {
      return device.get_library(text.file, metallib.string());
    });
    built.from_metallib = built.library;
  }
  if (!built.library) {
    load("text", [&] {
      return device.get_library(
          text.file, [&] { return std::string(text.text); });
    });
  }
  std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - started;
  built.seconds = took.count();
  return built;
}

const KernelLibrary& built_library(size_t index) {
  struct Entry {
    std::once_flag once;
    KernelLibrary built;
  };
  static auto* entries = new std::vector<Entry>(library_texts().size());
  auto& entry = (*entries)[index];
  std::call_once(
      entry.once, [&] { entry.built = build(library_texts()[index]); });
  return entry.built;
}

// The library whose family is the longest prefix of the kernel's name.
size_t index_of(const KernelName& kernel) {
  const auto& texts = library_texts();
  auto name = kernel.text();
  size_t found = texts.size(), longest = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    for (std::string_view family : texts[i].kernels) {
      if (name.starts_with(family) && family.size() > longest) {
        found = i;
        longest = family.size();
      }
    }
  }
  if (found == texts.size()) {
    throw KernelError("[mlx_norms] No library has a kernel " + name + ".");
  }
  return found;
}

} // namespace

MTL::Library* library_of(const KernelName& kernel) {
  const auto& built = built_library(index_of(kernel));
  if (!built.library) {
    throw KernelError(
        "[mlx_norms] The library " + built.name +
        " of kernels cannot be built: " + built.failure);
  }
  return built.library;
}

std::vector<KernelLibrary> kernel_libraries() {
  std::vector<KernelLibrary> all;
  for (size_t i = 0; i < library_texts().size(); ++i) {
    all.push_back(built_library(i));
  }
  return all;
}

} // namespace mlx_norms
