// Copyright © 2026 mlx_norms contributors

#include "foundation.h"

namespace hostmetal {

namespace {

struct Enumerator : Object {
  std::vector<Object*> items;
  size_t next = 0;

  uint64_t receive(
      std::string_view selector,
      const Arguments& arguments,
      void* result) override {
    if (selector == "nextObject") {
      return next < items.size() ? reply(items[next++]) : 0;
    }
    return Object::receive(selector, arguments, result);
  }
};

} // namespace

uint64_t String::receive(
    std::string_view selector,
    const Arguments& arguments,
    void* result) {
  if (selector == "UTF8String") {
    return reinterpret_cast<uint64_t>(text.c_str());
  }
  return Object::receive(selector, arguments, result);
}

uint64_t Array::receive(
    std::string_view selector,
    const Arguments& arguments,
    void* result) {
  if (selector == "count") {
    return items.size();
  }
  if (selector == "objectAtIndex:") {
    return reply(items.at(arguments[0]));
  }
  return Object::receive(selector, arguments, result);
}

uint64_t Dictionary::receive(
    std::string_view selector,
    const Arguments& arguments,
    void* result) {
  if (selector == "keyEnumerator") {
    auto* keys = new Enumerator();
    for (const auto& [key, item] : items) {
      keys->items.push_back(new String(key));
    }
    return reply(keys);
  }
  if (selector == "objectForKey:") {
    return reply(items.at(argument<String>(arguments[0]).text));
  }
  return Object::receive(selector, arguments, result);
}

} // namespace hostmetal
