// Copyright © 2026 mlx_norms contributors
//
// What the arrays of a written norm are of its input.

#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "csrc/patching/graph.h"
#include "csrc/patching/monomial.h"

namespace mlx_norms {

constexpr int kMaxAxes = 31; // of x

int length_over(const array& x, Axes axes);

class Reader {
 public:
  // Reads a norm on one stream: a vector that is no part of the norm is a
  // parameter, wherever it comes from.
  Reader(const array& x, mx::Stream stream, const Graph& graph);

  // The value, if it has been asked for; else null.
  const Monomial* find(const array& a) const;

  const Monomial& value_of(const array& a);

  const Arrays& parameters() const {
    return parameters_;
  }

 private:
  Monomial read(const array& a);
  Monomial unary(std::string_view name, const array& a, const Monomial& value)
      const;
  Monomial binary(
      std::string_view name,
      const array& a,
      const Monomial& left,
      const Monomial& right) const;
  Monomial broadcast(const array& a, const Monomial& value) const;
  int length_of(Axes axes) const {
    return length_over(x_, axes);
  }

  array x_;
  Arrays parameters_;
  mx::Stream stream_;
  const Graph& graph_;
  int depth_ = 0;
  std::vector<std::pair<std::uintptr_t, Monomial>> values_;
};

} // namespace mlx_norms
