// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/cuda/cubin.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/cuda/driver.h"

namespace mlx_norms::cuda {

namespace {

namespace fs = std::filesystem;

// The lines before a kernel's text, by which it is specialized.
std::string definitions(const Launch& launch, const KernelText& text) {
  std::string lines = "#define GROUP_SIZE " +
      std::to_string(launch.group[0] * launch.group[1] * launch.group[2]) +
      "\n#define THREADS_PER_CORE " + std::to_string(launch.threads_per_core) +
      "\n";
  auto define = [&](int index, int value) {
    lines += "#define FC_" + std::to_string(index) + " " +
        std::to_string(value) + "\n";
  };
  for (const auto& [index, name] : text.constants) {
    int value = 0; // for a constant that the launch does not use
    for (const auto& c : launch.constants) {
      if (c.index == index) {
        value = c.value;
      }
    }
    define(index, value);
  }
  return lines;
}

std::string log_of(Program program) {
  size_t size = 0;
  compiler().get_log_size(program, &size);
  std::string log(size, '\0');
  compiler().get_log(program, log.data());
  return log;
}

Cubin compile(
    const std::string& source,
    const KernelText& text,
    const std::string& architecture) {
  Program program = nullptr;
  check_compiler(
      compiler().create_program(
          &program, source.c_str(), text.name, 0, nullptr, nullptr),
      "nvrtcCreateProgram");
  auto destroy = [](Program p) { compiler().destroy_program(&p); };
  std::unique_ptr<_nvrtcProgram, decltype(destroy)> guard(program, destroy);
  check_compiler(
      compiler().add_name_expression(program, text.expression),
      "nvrtcAddNameExpression");
  auto options = compiler_options();
  options.push_back(architecture.c_str());
  if (compiler().compile_program(program, options.size(), options.data()) !=
      0) {
    throw KernelError(
        std::string("[mlx_norms] Kernel ") + text.name +
        " cannot be built: " + log_of(program));
  }
  Cubin cubin;
  const char* symbol = nullptr;
  check_compiler(
      compiler().get_lowered_name(program, text.expression, &symbol),
      "nvrtcGetLoweredName");
  cubin.symbol = symbol;
  size_t size = 0;
  check_compiler(
      compiler().get_cubin_size(program, &size), "nvrtcGetCUBINSize");
  cubin.code.resize(size);
  check_compiler(
      compiler().get_cubin(program, cubin.code.data()), "nvrtcGetCUBIN");
  return cubin;
}

// The directory for machine code; empty if there is none.
fs::path cache_directory() {
  if (auto* given = std::getenv("MLX_NORMS_CACHE")) {
    return given;
  }
  auto* home = std::getenv("HOME");
  return home ? fs::path(home) / ".cache" / "mlx_norms" : fs::path();
}

constexpr size_t kDigits = 16;

// FNV-1a in 64 bits.
std::string digest(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : text) {
    hash = (hash ^ c) * 0x100000001b3u;
  }
  std::string digits(kDigits, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    *digit = "0123456789abcdef"[hash & 15];
    hash >>= 4;
  }
  return digits;
}

// A C stream, which no other C++ runtime in the process can disturb.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open(const fs::path& path, const char* mode) {
  return File(std::fopen(path.c_str(), mode), std::fclose);
}

// A file holds the source, the symbol and the code, each after its length. The
// source is compared, as another one may have the same digest.
bool put(std::FILE* file, const std::string& part) {
  uint64_t size = part.size();
  return std::fwrite(&size, sizeof(size), 1, file) == 1 &&
      std::fwrite(part.data(), 1, size, file) == size;
}

bool get(std::FILE* file, std::string& part) {
  uint64_t size = 0;
  constexpr uint64_t kMax = 1 << 28;
  if (std::fread(&size, sizeof(size), 1, file) != 1 || size > kMax) {
    return false;
  }
  part.resize(size);
  return std::fread(part.data(), 1, size, file) == size;
}

bool load(const fs::path& path, const std::string& source, Cubin& cubin) {
  auto file = open(path, "rb");
  std::string compiled_of;
  return file && get(file.get(), compiled_of) && compiled_of == source &&
      get(file.get(), cubin.symbol) && get(file.get(), cubin.code);
}

// A failure is ignored: without a cache, compiling only takes time.
void save(const fs::path& path, const std::string& source, const Cubin& cubin) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  static std::atomic<int> saved{0}; // of all threads
  auto unfinished = path;
  unfinished += "." + std::to_string(getpid()) + "." + std::to_string(saved++);
  auto file = open(unfinished, "wb");
  if (!file) {
    return;
  }
  bool whole = put(file.get(), source) && put(file.get(), cubin.symbol) &&
      put(file.get(), cubin.code);
  whole &= std::fclose(file.release()) == 0;
  if (whole) {
    fs::rename(unfinished, path, error); // atomic for those who read it
  } else {
    fs::remove(unfinished, error);
  }
}

} // namespace

std::map<std::string, int> cubins_on_disk() {
  std::map<std::string, int> counts;
  std::error_code error; // a missing directory has none
  for (const auto& file : fs::directory_iterator(cache_directory(), error)) {
    auto name = file.path().filename().string();
    auto end = name.rfind('_');
    bool hex = name.size() - end - 1 == kDigits &&
        name.find_first_not_of("0123456789abcdef", end + 1) == name.npos;
    if (end != name.npos && hex) {
      ++counts[name.substr(0, end)];
    }
  }
  return counts;
}

Cubin cubin_for(
    const Launch& launch,
    const KernelText& text,
    int compute_capability) {
  int major = 0, minor = 0;
  check_compiler(compiler().version(&major, &minor), "nvrtcVersion");
  auto architecture =
      "--gpu-architecture=sm_" + std::to_string(compute_capability);
  auto source = "// " + architecture + ", NVRTC " + std::to_string(major) +
      "." + std::to_string(minor) + "\n" + definitions(launch, text) +
      text.text;
  auto directory = cache_directory();
  auto path = directory / (std::string(text.name) + "_" + digest(source));
  Cubin cubin;
  if (directory.empty() || !load(path, source, cubin)) {
    cubin = compile(source, text, architecture);
    if (!directory.empty()) {
      save(path, source, cubin);
    }
  }
  return cubin;
}

} // namespace mlx_norms::cuda
