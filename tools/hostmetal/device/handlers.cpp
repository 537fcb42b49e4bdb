// Copyright © 2026 mlx_norms contributors

#include "handlers.h"

#include <optional>
#include <stdexcept>

namespace hostmetal {

namespace {

// Never destroyed: a stream's thread may still run at exit.
auto& current() {
  static auto* handlers = new std::optional<Handlers>();
  return *handlers;
}

} // namespace

const Handlers& handlers() {
  if (!current()) {
    throw std::runtime_error(
        "[hostmetal] no simulator is attached to the software device");
  }
  return *current();
}

void set_handlers(Handlers handlers) {
  current() = std::move(handlers);
}

void refuse(const std::string& what) {
  handlers().fault(what);
  throw std::runtime_error("[hostmetal] " + what);
}

} // namespace hostmetal
