// Copyright © 2026 mlx_norms contributors

// The part of the Objective-C runtime that metal-cpp's inline code calls. It
// casts objc_msgSend to each message's own signature, so this file must not see
// metal-cpp's declarations of it.

#include "objc.h"

#include <mutex>
#include <string>
#include <unordered_set>

#include "handlers.h"

#if !defined(__x86_64__)
#error "messages are received by the x86-64 calling convention"
#endif

namespace hostmetal {

uint64_t Object::receive(std::string_view selector, const Arguments&, void*) {
  // Libraries, pipelines and encoders live as long as the process.
  if (selector == "retain" || selector == "autorelease") {
    return reinterpret_cast<uint64_t>(this);
  }
  if (selector == "release") {
    return 0;
  }
  refuse("the software device does not answer to " + std::string(selector));
}

} // namespace hostmetal

using hostmetal::Object;

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const char* sel_registerName(const char* name) {
  static std::mutex mutex;
  static auto* names = new std::unordered_set<std::string>();
  std::lock_guard lock(mutex);
  return names->emplace(name).first->c_str();
}

EXPORTED void* objc_lookUpClass(const char*) {
  return nullptr;
}

EXPORTED void* objc_getProtocol(const char*) {
  return nullptr;
}

EXPORTED uint64_t objc_msgSend(
    Object* receiver,
    const char* selector,
    uint64_t a,
    uint64_t b,
    uint64_t c,
    uint64_t d) {
  // As in Objective-C, a message to nil does nothing.
  return receiver ? receiver->receive(selector, {a, b, c, d}, nullptr) : 0;
}

EXPORTED void objc_msgSend_stret(
    void* result,
    Object* receiver,
    const char* selector,
    uint64_t a,
    uint64_t b,
    uint64_t c,
    uint64_t d) {
  if (receiver) {
    receiver->receive(selector, {a, b, c, d}, result);
  }
}

EXPORTED double objc_msgSend_fpret(Object*, const char* selector) {
  hostmetal::refuse(
      "the software device does not answer to " + std::string(selector));
}
