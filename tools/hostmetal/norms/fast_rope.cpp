// Copyright © 2026 mlx_norms contributors

// MLX's rotary embedding with sines and cosines as far off as those of its
// kernel for Metal may be: by METALSIM_FAST_ERROR times what Metal permits.

#include "csrc/rope/fast_rope.h"

#include <cstdlib>

#include "mlx/backend/cpu/encoder.h"
#include "mlx/fast.h"
#include "mlx/primitives.h"
#include "permitted.h"

namespace mlx_norms {

namespace {

metalsim::FastMath fast_math() {
  const char* given = std::getenv("METALSIM_FAST_ERROR");
  return {given ? std::strtof(given, nullptr) : 0.0f};
}

// A function of each number of an array.
class Elementwise : public mx::UnaryPrimitive {
 public:
  using Function = float (metalsim::FastMath::*)(float) const;

  Elementwise(mx::Stream s, Function function)
      : UnaryPrimitive(s),
        function_(function) {}

  static array of(const array& x, mx::Stream s, Function f) {
    return array(
        x.shape(),
        mx::float32,
        std::make_shared<Elementwise>(s, f),
        {mx::contiguous(x, false, s)});
  }

  void eval_cpu(const Arrays& inputs, array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(inputs[0]);
    encoder.set_output_array(out);
    encoder.dispatch([x = inputs[0].data<float>(),
                      y = out.data<float>(),
                      n = out.size(),
                      f = function_] {
      auto math = fast_math();
      for (size_t i = 0; i < n; ++i) {
        y[i] = (math.*f)(x[i]);
      }
    });
  }
  void eval_gpu(const Arrays&, array&) override {}
  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override {
    return {{of(inputs[0], stream(), function_)}, axes};
  }
  const char* name() const override {
    return "hostmetal::Elementwise";
  }

 private:
  Function function_;
};

} // namespace

array fast_rope(
    const array& x,
    int dims,
    bool traditional,
    std::optional<float> base,
    float scale,
    const array& offset,
    const std::optional<array>& freqs,
    mx::Stream s) {
  if (fast_math().factor == 0) {
    return mx::fast::rope(x, dims, traditional, base, scale, offset, freqs, s);
  }
  auto by = [s](Elementwise::Function f) {
    return [f, s](const array& theta) { return Elementwise::of(theta, s, f); };
  };
  auto sin = by(&metalsim::FastMath::sin), cos = by(&metalsim::FastMath::cos);
  return rope_by(sin, cos, x, dims, traditional, base, scale, offset, freqs, s);
}

} // namespace mlx_norms
