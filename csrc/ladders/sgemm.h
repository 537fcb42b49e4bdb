// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/matmul/product.h"

namespace mlx_norms {

// The matmul of dense float32 arrays by one of sgemm_rungs().
struct SgemmRung {
  const Rung* rung;
  mx::Dtype dtype = mx::float32;

  bool operator==(const SgemmRung&) const = default;
  const char* name() const {
    return "mlx_norms::SgemmRung";
  }
  mx::Shape shape(const Arrays& inputs) const;
  Donors donors(const Arrays&, size_t, mx::Stream) const {
    return {};
  }
  void check(const Arrays& inputs) const;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const;

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums,
      mx::Stream s) const;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const;
  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const;
};

// Throws std::invalid_argument if the rung does not accept the arguments.
mx::array sgemm_by_rung(
    const mx::array& a,
    const mx::array& b,
    const std::string& rung,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
