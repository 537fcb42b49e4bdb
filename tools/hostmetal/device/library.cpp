// Copyright © 2026 mlx_norms contributors

#include "library.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "foundation.h"
#include "handlers.h"

namespace hostmetal {

namespace fs = std::filesystem;

namespace {

auto& libraries() {
  static auto* map = new std::map<std::string, std::shared_ptr<Library>>();
  return *map;
}

struct FunctionConstant : Object {
  int index;

  explicit FunctionConstant(int index) : index(index) {}

  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override {
    return selector == "index" ? index
                               : Object::receive(selector, arguments, result);
  }
};

// A kernel without values for its constants.
struct Function : Object {
  std::map<std::string, int> constants;

  explicit Function(std::map<std::string, int> constants)
      : constants(std::move(constants)) {}

  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override {
    if (selector != "functionConstantsDictionary") {
      return Object::receive(selector, arguments, result);
    }
    std::map<std::string, Object*> by_name;
    for (const auto& [name, index] : constants) {
      by_name[name] = new FunctionConstant(index);
    }
    return reply(new Dictionary(by_name));
  }
};

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
  if (selector == "staticThreadgroupMemoryLength") {
    return handlers().static_memory(*this);
  }
  return Object::receive(selector, arguments, result);
}

uint64_t Library::receive(
    std::string_view selector,
    const Arguments& arguments,
    void* result) {
  if (selector == "functionNames") {
    std::vector<Object*> names;
    for (const auto& [name, constants] : handlers().kernels(*this)) {
      names.push_back(new String(name));
    }
    return reply(new Array(std::move(names)));
  }
  if (selector == "newFunctionWithName:") {
    const auto& name = argument<String>(arguments[0]).text;
    return reply(new Function(handlers().kernels(*this).at(name)));
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
    handlers().kernels(*wanted); // compiles it
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
