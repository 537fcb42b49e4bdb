// Copyright © 2026 mlx_norms contributors

#include "library.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "handlers.h"

namespace hostmetal {

namespace fs = std::filesystem;

namespace {

auto& libraries() {
  static auto* map = new std::map<std::string, std::shared_ptr<Library>>();
  return *map;
}

void check_text(const Library& library) {
  auto wrong = std::find_if(
      library.text.begin(), library.text.end(), [](unsigned char c) {
        return c == 0 || c > 127;
      });
  if (wrong != library.text.end()) {
    auto line = 1 + std::count(library.text.begin(), wrong, '\n');
    refuse(
        "library " + library.name + ": its text is not ASCII in line " +
        std::to_string(line) + ", and MLX gives Metal ASCII text");
  }
}

} // namespace

uint64_t Pipeline::receive(
    std::string_view selector,
    const Arguments& arguments,
    void* result) {
  if (selector == "maxTotalThreadsPerThreadgroup") {
    return handlers().thread_limit(*this);
  }
  if (selector == "threadExecutionWidth") {
    return 32;
  }
  return Object::receive(selector, arguments, result);
}

std::string read_metallib(const std::string& name, const std::string& path) {
  fs::path file = path;
  if (file.extension() != ".metallib") {
    file = file / (name + ".metallib");
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    refuse(
        "library " + name + ": there is no file " + file.string() +
        " to load it from");
  }
  return {std::istreambuf_iterator<char>(stream), {}};
}

Library* find_or_add(std::shared_ptr<Library> wanted) {
  auto found = libraries().find(wanted->name);
  if (found == libraries().end()) {
    if (!wanted->compiled_ahead) {
      check_text(*wanted);
    }
    found = libraries().emplace(wanted->name, std::move(wanted)).first;
  } else if (
      found->second->text != wanted->text ||
      found->second->options != wanted->options ||
      found->second->compiled_ahead != wanted->compiled_ahead) {
    refuse(
        "library " + wanted->name +
        ": the name was used before for another text or other options, and "
        "MLX would return that library");
  }
  return found->second.get();
}

void forget_library(const std::string& name) {
  libraries().erase(name);
}

Pipeline* find_or_add(std::shared_ptr<Pipeline> wanted) {
  auto& pipelines = wanted->library->pipelines;
  auto key = wanted->hash_name.empty() ? wanted->kernel : wanted->hash_name;
  auto found = pipelines.find(key);
  if (found == pipelines.end()) {
    handlers().pipeline(*wanted);
    found = pipelines.emplace(key, std::move(wanted)).first;
  } else if (
      found->second->kernel != wanted->kernel ||
      found->second->constants != wanted->constants) {
    refuse(
        wanted->kernel + ": MLX has " + found->second->kernel +
        " cached under the hash name " + key +
        ", with other function constants or another kernel");
  }
  return found->second.get();
}

} // namespace hostmetal
