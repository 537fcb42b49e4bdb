// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/matmul/primitive.h"

namespace mlx_norms {

// The matmul of dense float32 arrays by a rung.
class SgemmRung : public Product {
 public:
  // The rung is one of sgemm_rungs().
  SgemmRung(mx::Stream stream, const Rung& rung)
      : Product(stream),
        rung_(rung) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  const char* name() const override {
    return "mlx_norms::SgemmRung";
  }
  bool is_equivalent(const Primitive& other) const override;

 private:
  array times(const array& a, const array& b) override;
  void check(const array& a, const array& b) const override;

  const Rung& rung_;
};

// Throws std::invalid_argument if the rung does not accept the arguments.
mx::array sgemm_by_rung(
    const mx::array& a,
    const mx::array& b,
    const std::string& rung,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
