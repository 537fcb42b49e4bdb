// Copyright © 2026 mlx_norms contributors

#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "library.h"
#include "mlx/array.h"

namespace hostmetal {

namespace mx = mlx::core;

// How an argument was bound: set_input_array, set_output_array, set_buffer, or
// set_bytes.
enum class BindingKind { Input, Output, Buffer, Bytes };

// What a launch finds at a buffer index.
struct Binding {
  BindingKind kind;

  // Bytes: the copy that Metal takes.
  std::string bytes;

  // The others: the allocation, and where in it the kernel's pointer starts.
  char* address = nullptr;
  size_t size = 0;
  size_t offset = 0;
  // The bytes of the allocation that the array's elements span; those of a raw
  // buffer are not known and are all that follow.
  size_t begin = 0;
  size_t end = 0;
  bool dense = false; // no gaps between the elements
  std::weak_ptr<mx::array::Data> owner;
  // The array is of eval_gpu's own making, or an output.
  bool fresh = false;

  // Whether the launch finds something there, and whether it must write every
  // byte from begin to end, as nothing else did or will.
  bool initialized = true;
  bool must_fill = false;
  // Handed to add_temporary.
  bool temporary = false;

  bool is_array() const {
    return kind == BindingKind::Input || kind == BindingKind::Output;
  }
};

// One dispatch, as recorded when it was encoded.
struct Launch {
  std::shared_ptr<const Pipeline> pipeline;
  std::map<int, Binding> bindings;
  // Indices bound for an earlier pipeline of the encoder and not for this one.
  std::set<int> stale;
  std::map<int, size_t> threadgroup_memory;
  std::array<size_t, 3> grid; // in threads, or in threadgroups
  std::array<size_t, 3> group;
  bool in_threads;
  int stream; // its index
};

} // namespace hostmetal
