// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/patched.h"

#include <stdexcept>

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/norm/norm.h"
#include "csrc/patching/pending.h"
#include "csrc/patching/report.h"
#include "mlx/fast.h"

namespace mlx_norms {

namespace {

OptionalArray optional(const array* a) {
  return a ? OptionalArray(*a) : std::nullopt;
}

bool takes(const array* a) {
  return !a || takes_dtype(a->dtype());
}

bool fits_rows(const array* v, const array& x) {
  return !v || is_vector(*v, x.shape(-1));
}

// As in mx.fast: parameters may widen x, but a bias alone does not.
mx::Dtype output_dtype(const FastNormArguments& a) {
  if (!a.weight) {
    return a.x->dtype();
  }
  return a.bias ? mx::result_type(*a.x, *a.weight, *a.bias)
                : mx::result_type(*a.x, *a.weight);
}

// Whether the gradient of mx.fast's norm is wrong: MLX up to 0.32.4 reads past
// a thread's vectors if rows on CUDA are not whole vectors of 16 bytes
// (docs/mlx_layer_norm_gradient.md). Such calls are handled here, with any eps.
bool stock_gradient_is_wrong(
    const FastNormArguments& a,
    bool center,
    mx::Stream stream) {
  constexpr int kVectorBytes = 16;
  auto& x = *a.x;
  auto backend = backend_of(stream);
  bool on_cuda = backend == Backend::Cuda || backend == Backend::None;
  if (!center || !on_cuda || x.ndim() == 0) {
    return false;
  }
  int vector = kVectorBytes / output_dtype(a).size();
  return x.shape(-1) > vector && x.shape(-1) % vector != 0;
}

// Why mx.fast has to handle this call; nullopt if it need not.
std::optional<Counted>
not_taken(const FastNormArguments& a, bool center, mx::Stream stream) {
  auto& x = *a.x;
  if (!takes_dtype(x.dtype()) || !takes(a.weight) || !takes(a.bias)) {
    return Counted::DtypeNotTaken;
  }
  bool stock_is_wrong = stock_gradient_is_wrong(a, center, stream);
  if (x.ndim() == 0 || !fits_rows(a.weight, x) || !fits_rows(a.bias, x) ||
      !(a.eps >= 0 || stock_is_wrong)) {
    return Counted::ArgumentsNotTaken;
  }
  if (backend_of(stream) == Backend::None && !stock_is_wrong) {
    return Counted::MlxTooOld;
  }
  return std::nullopt;
}

// The norm by this package; nullopt, counted: mx.fast has to compute it.
OptionalArray computed(const FastNormArguments& a, bool center) {
  auto stream = mx::to_stream(a.stream);
  if (auto why = not_taken(a, center, stream)) {
    count(*why);
    return std::nullopt;
  }
  auto& x = *a.x;
  // A shapeless trace would keep the length of mx.ones, which does not fit rows
  // of another one.
  bool shapeless = x.is_tracer() && in_shapeless_trace(x);
  auto if_any = [&](const array* v, float nothing) {
    return v && shapeless && does_nothing(*v, nothing, x) ? nullptr : v;
  };
  NormInputs in{
      {kX, &x},
      {kWeight, if_any(a.weight, 1.0f)},
      {kBias, if_any(a.bias, 0.0f)}};
  NormSpec spec{.operands = in.present(), .center = center, .eps = a.eps};
  auto inputs = in.arrays();
  auto norm = shared(Norm(spec, output_dtype(a), inputs));
  bool composes = backend_of(stream) == Backend::None;
  if (!composes && !runs_kernel(norm, inputs, stream)) {
    count(Counted::NoKernel);
    return std::nullopt;
  }
  count(Counted::Alone);
  if (composes) { // of MLX's operations
    return make(std::move(norm), std::move(inputs), stream)[0];
  }
  auto y = node(std::move(norm), std::move(inputs), stream)[0];
  mark_counted(y);
  return y;
}

} // namespace

array patched_rms_norm(const FastNormArguments& a) {
  auto y = computed(a, /* center= */ false);
  return y ? *y : mx::fast::rms_norm(*a.x, optional(a.weight), a.eps, a.stream);
}

array patched_layer_norm(const FastNormArguments& a) {
  auto y = computed(a, /* center= */ true);
  return y ? *y
           : mx::fast::layer_norm(
                 *a.x, optional(a.weight), optional(a.bias), a.eps, a.stream);
}

bool composes_ropes(mx::Stream stream) {
  return stream.device == mx::Device::cpu &&
      backend_of(stream) != Backend::None;
}

OptionalArray patched_rope(const RopeArguments& given) {
  auto stream = mx::to_stream(given.stream);
  if (!composes_ropes(stream) || given.q->ndim() != 4 || !given.dims) {
    return std::nullopt;
  }
  auto a = given;
  a.layout = "BHLD";
  a.stream = stream;
  try {
    auto [op, inputs] = norm_rope_call(a);
    op.normalized = false;
    auto rope = shared(std::move(op));
    if (!has_kernel(rope, inputs, stream)) {
      return std::nullopt;
    }
    return node(std::move(rope), std::move(inputs), stream)[0];
  } catch (const std::invalid_argument&) { // left to MLX, as its message is
    return std::nullopt;
  }
}

} // namespace mlx_norms
