// Copyright © 2026 mlx_norms contributors
//
// What of Foundation a library's replies are made of. It lives as long as the
// process.

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "objc.h"

namespace hostmetal {

struct String : Object {
  std::string text;

  explicit String(std::string text) : text(std::move(text)) {}
  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override;
};

struct Array : Object {
  std::vector<Object*> items;

  explicit Array(std::vector<Object*> items) : items(std::move(items)) {}
  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override;
};

struct Dictionary : Object {
  std::map<std::string, Object*> items;

  explicit Dictionary(std::map<std::string, Object*> items)
      : items(std::move(items)) {}
  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override;
};

// A message's reply, or an argument, that is an object.
inline uint64_t reply(Object* object) {
  return reinterpret_cast<uint64_t>(object);
}

template <typename T>
T& argument(uint64_t value) {
  return *Object::from<T>(reinterpret_cast<const void*>(value));
}

} // namespace hostmetal
