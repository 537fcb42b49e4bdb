// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/matmul/product.h"

namespace mlx_norms {

// The matmul of dense float32 arrays by one of sgemm_rungs().
struct SgemmRung : Product<SgemmRung> {
  const Rung* rung;

  explicit SgemmRung(const Rung& rung) : Product(mx::float32), rung(&rung) {}

  bool operator==(const SgemmRung&) const = default;
  const char* name() const override {
    return "mlx_norms::SgemmRung";
  }
  void check(const Arrays& inputs) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;

  array times(const array& a, const array& b, mx::Stream s) const override;
};

struct SgemmByRung {
  const array* a = nullptr;
  const array* b = nullptr;
  std::string rung;
  mx::StreamOrDevice stream;
};

// Throws std::invalid_argument if the rung does not accept the arguments.
array sgemm_by_rung(const SgemmByRung& arguments);

} // namespace mlx_norms
