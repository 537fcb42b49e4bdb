// Copyright © 2026 mlx_norms contributors
//
// Reads what arrays are from the graph between a norm's input and its result.

#pragma once

#include <string_view>
#include <unordered_map>

#include "csrc/patching/pending_graph.h"
#include "csrc/patching/written_values.h"

namespace mlx_norms {

class WrittenReader {
 public:
  // Of a norm within a graph, on one stream: a vector that is no part of the
  // norm is a parameter, wherever it comes from.
  WrittenReader(const array& x, mx::Stream stream, const PendingGraph& graph);

  const Value& value_of(const array& a);

  // The value, if it has been asked for; else null.
  const Value* find(const array& a) const;

  const array& x() const {
    return x_;
  }
  const Arrays& parameters() const {
    return parameters_;
  }

 private:
  Value as_parameter(const array& a, int i) const;
  bool may_be_parameter(const array& a, const Value& value) const;
  Value read(const array& a);
  Value unary(std::string_view name, const array& a, const Value& value);
  Value binary(
      std::string_view name,
      const array& a,
      const Value& left,
      const Value& right) const;
  Value broadcast(const array& a, const Value& value) const;

  array x_;
  Arrays parameters_;
  mx::Stream stream_;
  const PendingGraph& graph_;
  int nodes_ = 0;
  int depth_ = 0;
  std::unordered_map<std::uintptr_t, Value> values_;
};

} // namespace mlx_norms
