// Copyright © 2026 mlx_norms contributors

// MLX's node of a rope on a GPU, which there is on no CPU stream, for graphs
// whose passes take it. It is not computed.

#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <variant>
#include <vector>

#include "mlx/fast_primitives.h"
#include "mlx/mlx.h"

namespace hostmetal {

namespace mx = mlx::core;

// With the members of mx::fast::RoPE, whose own functions MLX does not export.
class RopeNode : public mx::Primitive {
 public:
  RopeNode(mx::Stream s, int dims, bool traditional, float base, float scale)
      : Primitive(s),
        dims_(dims),
        traditional_(traditional),
        base_(base),
        scale_(scale) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    throw std::runtime_error("[hostmetal] A rope of MLX's is not computed.");
  }
  void eval_gpu(const std::vector<mx::array>& in, std::vector<mx::array>& out)
      override {
    eval_cpu(in, out);
  }
  const char* name() const override {
    return "RoPE";
  }

 private:
  std::function<std::vector<mx::array>(std::vector<mx::array>)> fallback_;
  int dims_;
  bool traditional_;
  float base_;
  float scale_;
  bool forward_ = true;
};
static_assert(sizeof(RopeNode) == sizeof(mx::fast::RoPE));

// As mx.fast.rope.
inline mx::array rope(
    const mx::array& a,
    int dims,
    bool traditional,
    std::optional<float> base,
    float scale,
    const std::variant<int, mx::array>& offset,
    const std::optional<mx::array>& freqs) {
  auto node = std::make_shared<RopeNode>(
      mx::default_stream(mx::default_device()),
      dims,
      traditional,
      base.value_or(1.0f),
      scale);
  auto* number = std::get_if<int>(&offset);
  std::vector<mx::array> inputs{
      a, number ? mx::array(*number) : std::get<mx::array>(offset)};
  if (freqs) {
    inputs.push_back(*freqs);
  }
  return mx::array(a.shape(), a.dtype(), std::move(node), std::move(inputs));
}

} // namespace hostmetal
