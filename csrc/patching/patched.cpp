// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/patched.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/common/pending.h"
#include "csrc/norm/norm.h"
#include "csrc/patching/fusion.h"
#include "mlx/fast.h"

namespace mlx_norms {

namespace {

// A call of one of mx.fast's norms.
struct Request {
  const array& x;
  const array* weight; // null: none
  const array* bias;
  mx::Stream stream;
};

// The same in this package's terms.
struct Plan {
  const array& x; // of 16 bits, where the request's is cast
  NormSpec spec{};
  mx::Dtype dtype = mx::float32;
  Arrays parameters{};
};

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
mx::Dtype output_dtype(const Request& request) {
  auto& [x, weight, bias, stream] = request;
  if (!weight) {
    return x.dtype();
  }
  return bias ? mx::result_type(x, *weight, *bias)
              : mx::result_type(x, *weight);
}

// Whether the gradient of mx.fast's norm is wrong: MLX up to 0.32.4 reads past
// a thread's vectors if rows on CUDA are not whole vectors of 16 bytes
// (docs/mlx_layer_norm_gradient.md). Such calls are handled here, with any eps.
bool stock_gradient_is_wrong(const Request& request, bool center) {
  constexpr int kVectorBytes = 16;
  auto& x = request.x;
  auto backend = backend_of(request.stream);
  bool on_cuda = backend == Backend::Cuda || backend == Backend::None;
  if (!center || !on_cuda || x.ndim() == 0) {
    return false;
  }
  int vector = kVectorBytes / output_dtype(request).size();
  return x.shape(-1) > vector && x.shape(-1) % vector != 0;
}

// Why mx.fast has to handle this request; nullopt if it need not.
std::optional<Outcome>
not_taken(const Request& request, bool center, float eps) {
  auto& [x, weight, bias, stream] = request;
  if (!takes_dtype(x.dtype()) || !takes(weight) || !takes(bias)) {
    return Outcome::DtypeNotTaken;
  }
  bool stock_is_wrong = stock_gradient_is_wrong(request, center);
  if (x.ndim() == 0 || !fits_rows(weight, x) || !fits_rows(bias, x) ||
      !(eps >= 0 || stock_is_wrong)) {
    return Outcome::ArgumentsNotTaken;
  }
  if (backend_of(stream) == Backend::None && !stock_is_wrong) {
    return Outcome::MlxTooOld;
  }
  return std::nullopt;
}

// Whether a parameter does nothing: it is mx.ones or mx.zeros, made in the
// trace that x belongs to. Shapeless compile would keep its length, which does
// not fit rows of another one.
bool does_nothing(const array& parameter, float number, const array& x) {
  return x.is_tracer() && !parameter.is_tracer() &&
      as_number_throughout(parameter) == number;
}

// If nothing is fused, another thread may be evaluating the weight: only what
// evaluation does not change may be read.
Plan make_plan(const Request& request, bool center, float eps, Fusion fusion) {
  Plan plan{
      .x = fusion == Fusion::Never ? request.x
                                   : before_cast(request.x, request.stream)};
  plan.spec.center = center;
  plan.spec.eps = eps;
  plan.dtype = output_dtype(request);
  plan.parameters.reserve(3); // x comes before them
  auto is_applied = [&](const array* a, float nothing) {
    return a &&
        (fusion == Fusion::Never || !does_nothing(*a, nothing, request.x));
  };
  if (auto* weight = request.weight; is_applied(weight, 1.0f)) {
    plan.spec.operands.set(kWeight);
    auto shifted = fusion == Fusion::Never ? std::nullopt : as_shifted(*weight);
    if (shifted) {
      plan.spec.weight_offset = shifted->offset;
      plan.spec.rounding = Rounding::Late;
      plan.parameters.push_back(shifted->weight);
    } else {
      plan.parameters.push_back(*weight);
    }
  }
  if (is_applied(request.bias, 0.0f)) {
    plan.spec.operands.set(kBias);
    plan.parameters.push_back(*request.bias);
  }
  return plan;
}

// Whether a product in the sum is held by more than it, such as the caller's
// variable: only a pass over the graph knows whether another operation takes
// it.
bool is_sum_of_held_product(const array& x) {
  return is_pending_sum(x) &&
      std::ranges::any_of(x.inputs(), [](const array& a) {
           return is_pending(a, "Multiply") && !is_held_once(a);
         });
}

// The norm fused with its pending sum, or the reason why it is not.
std::pair<OptionalArray, Outcome>
fused(const Request& request, const Plan& plan, Fusion fusion) {
  if (fusion != Fusion::Now) {
    auto why =
        fusion == Fusion::Never ? Outcome::FusionOff : Outcome::LeftToGraphPass;
    return {std::nullopt, why};
  }
  auto& x = plan.x;
  if (!is_pending(x)) {
    return {std::nullopt, Outcome::NotASum};
  }
  if (x.is_tracer() && is_sum_of_held_product(x)) {
    return {std::nullopt, Outcome::LeftToGraphPass};
  }
  auto stream = request.stream;
  auto [norm, outcome] = fused_norm(
      plan.spec,
      plan.dtype,
      x,
      plan.parameters,
      stream,
      present_inputs,
      is_held_once);
  if (!norm) {
    return {std::nullopt, outcome};
  }
  // The parameter may belong to a transform inside of the sum's transform,
  // which the sum would outlive.
  auto& parameters = plan.parameters;
  if (x.is_tracer() &&
      std::any_of(parameters.begin(), parameters.end(), [&](const array& a) {
        return takes_argument_unknown_to(a, x);
      })) {
    return {std::nullopt, Outcome::ParameterOfTransform};
  }
  return {fuse_in_place(std::move(*norm), x), outcome};
}

// The norm alone, or why mx.fast has to compute it.
std::pair<OptionalArray, Outcome>
alone(const Request& request, Plan plan, Outcome not_fused) {
  auto stream = request.stream;
  auto inputs = std::move(plan.parameters);
  inputs.insert(inputs.begin(), plan.x);
  if (backend_of(stream) == Backend::None) { // of MLX's operations
    return {
        make_norm(plan.spec, plan.dtype, std::move(inputs), stream)[0],
        not_fused};
  }
  Norm norm(plan.spec, plan.dtype, inputs);
  if (!runs_kernel(norm, inputs, stream)) {
    return {std::nullopt, Outcome::NoKernel};
  }
  auto outputs = node(std::move(norm), std::move(inputs), stream);
  return {std::move(outputs[0]), not_fused};
}

// The norm, fused if it can be; none if mx.fast has to compute it.
OptionalArray counted(const Request& request, Plan plan, Fusion fusion) {
  auto [norm, outcome] = fused(request, plan, fusion);
  if (!norm) {
    std::tie(norm, outcome) = alone(request, std::move(plan), outcome);
  }
  count(outcome);
  return norm;
}

template <typename F>
array patched_norm(
    const Request& request,
    bool center,
    float eps,
    Fusion fusion,
    F pass_on) {
  if (auto why = not_taken(request, center, eps)) {
    count(*why);
    return pass_on();
  }
  auto plan = make_plan(request, center, eps, fusion);
  bool is_offset = plan.spec.weight_offset != 0.0f;
  auto normalized = counted(request, std::move(plan), fusion);
  if (!normalized) {
    return pass_on();
  }
  if (is_offset) {
    count_offset();
  }
  return std::move(*normalized);
}

} // namespace

array patched_rms_norm(
    const array& x,
    const array* weight,
    float eps,
    mx::StreamOrDevice stream,
    Fusion fusion) {
  Request request{x, weight, nullptr, mx::to_stream(stream)};
  return patched_norm(request, /* center= */ false, eps, fusion, [&] {
    return mx::fast::rms_norm(x, optional(weight), eps, stream);
  });
}

array patched_layer_norm(
    const array& x,
    const array* weight,
    const array* bias,
    float eps,
    mx::StreamOrDevice stream,
    Fusion fusion) {
  Request request{x, weight, bias, mx::to_stream(stream)};
  return patched_norm(request, /* center= */ true, eps, fusion, [&] {
    return mx::fast::layer_norm(
        x, optional(weight), optional(bias), eps, stream);
  });
}

} // namespace mlx_norms
