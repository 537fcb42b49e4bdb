// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/primitive.h"

#include <algorithm>
#include <numeric>

#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/gating.h"
#include "csrc/norm/modulation.h"
#include "csrc/norm/nodes.h"
#include "csrc/norm/split.h"

namespace mlx_norms {

namespace {

// The index of i in argnums; -1: absent.
int place_of(int i, const std::vector<int>& argnums) {
  auto it = std::find(argnums.begin(), argnums.end(), i);
  return it == argnums.end() ? -1 : it - argnums.begin();
}

// Broadcasts a, a batch of one, to the batch size of `like`. The size comes
// from a sum, so that it is not part of the graph.
array broadcast_batch(const array& a, const array& like, mx::Stream s) {
  std::vector<int> axes(like.ndim() - 1);
  std::iota(axes.begin(), axes.end(), 1);
  auto sums = sum_over(like, axes, /* keepdims= */ false, s);
  mx::Shape column(a.ndim(), 1);
  column[0] = -1;
  return mx::broadcast_arrays({a, mx::reshape(sums, column, s)}, s)[0];
}

} // namespace

Arrays Norm::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  if (spec_.is_gated()) {
    auto f = [this](const Arrays& inputs) {
      return fallback_norms(spec_, dtype_, inputs, stream());
    };
    return jvp_of(f, primals, tangents, argnums);
  }
  auto tangent_of = [&](int i) -> const array* {
    auto place = place_of(i, argnums);
    return place < 0 ? nullptr : &tangents[place];
  };
  Arrays outputs;
  auto n_primals = static_cast<int>(primals.size());
  for (int i = 0; i < n_primals; i += spec_.n_inputs()) {
    NormInputs in(spec_, &primals[i]);
    NormPositions at(spec_, i);
    auto s =
        spec_.residual ? bare_norm(spec_, mx::float32, in, stream())[1] : in.x;

    OptionalArray ds, dy;
    auto add = [&](OptionalArray& total, const array& term) {
      total = total ? mx::add(*total, term, stream()) : term;
    };
    if (spec_.is_factored()) {
      ds = sum_tangent(
          spec_,
          in,
          tangent_of(at.x),
          tangent_of(at.residual),
          tangent_of(at.factor),
          stream());
    } else {
      for (auto* t : {tangent_of(at.x), tangent_of(at.residual)}) {
        if (t) {
          add(ds, mx::astype(*t, s.dtype(), stream()));
        }
      }
    }
    if (ds && spec_.clamp && s.dtype() == mx::float16) {
      ds = zero_where_saturated(*ds, s, stream());
    }
    if (ds) {
      auto unclamped = spec_; // ds is zero where the sum is saturated, not dn
      unclamped.clamp = false;
      auto dn =
          bare_norm_vjp(unclamped, mx::float32, s, *ds, nullptr, stream());
      auto no_bias = spec_;
      no_bias.bias = false;
      add(dy, apply_parameters(no_bias, dn, in, stream()));
    }
    if (auto* dw = tangent_of(at.weight)) {
      auto n = bare_norm(spec_, s, stream());
      add(dy, mx::multiply(n, *dw, stream()));
    }
    if (auto* db = tangent_of(at.bias)) {
      add(dy, mx::broadcast_arrays({*db, s}, stream())[0]);
    }
    if (dy && in.scale) {
      dy = mx::multiply(*dy, scale_factor(*in.scale, stream()), stream());
    }
    if (auto* d_scale = tangent_of(at.scale)) {
      auto n = bare_norm(spec_, s, stream());
      auto y = apply_parameters(spec_, n, in, stream());
      add(dy, mx::multiply(y, *d_scale, stream()));
    }
    if (auto* d_shift = tangent_of(at.shift)) {
      add(dy, mx::broadcast_arrays({*d_shift, s}, stream())[0]);
    }
    outputs.push_back(
        dy ? mx::astype(*dy, dtype_, stream())
           : mx::astype(mx::zeros_like(s, stream()), dtype_, stream()));
    if (spec_.residual) {
      outputs.push_back(ds ? *ds : mx::zeros_like(s, stream()));
    }
  }
  return outputs;
}

Arrays Norm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  Arrays gradients(argnums.size(), array(0.0f));
  auto wanted = [&](int i) { return place_of(i, argnums) >= 0; };
  auto give = [&](int i, const array& gradient) {
    if (wanted(i)) {
      gradients[place_of(i, argnums)] =
          mx::astype(gradient, primals[i].dtype(), stream());
    }
  };
  auto n_primals = static_cast<int>(primals.size());
  for (int i = 0, out = 0; i < n_primals;
       i += spec_.n_inputs(), out += spec_.n_outputs()) {
    NormPositions at(spec_, i);
    NormInputs in(spec_, &primals[i]);
    NormVJPSpec spec{.norm = without_sum(spec_)};
    spec.norm.residual = spec_.residual; // its cotangent
    spec.input = wanted(at.x) || wanted(at.residual) || wanted(at.factor);
    auto give_if = [&](int to, const OptionalArray& gradient) {
      if (gradient) {
        give(to, *gradient);
      }
    };
    // Of x, or of what is added up to s
    auto give_input = [&](const array& ds) {
      give(at.residual, ds);
      if (!spec_.is_factored()) {
        give(at.x, ds);
        return;
      }
      bool of_x = wanted(at.x) || (spec_.factor_of_sum && wanted(at.residual));
      auto found = factor_vjp(spec_, in, ds, of_x, wanted(at.factor), stream());
      give_if(at.x, found.x);
      give_if(at.factor, found.factor);
      if (spec_.factor_of_sum) {
        give_if(at.residual, found.x);
      }
    };
    spec.weight = wanted(at.weight);
    spec.bias = wanted(at.bias);

    const auto& s = spec_.residual ? outputs[out + 1] : primals[at.x];
    if (outputs.size() > 1 && is_made_of_zeros(cotangents[out])) {
      // A zero cotangent times a value that is not finite would make NaN. A
      // norm that is its own node would take no part in this gradient.
      auto ds =
          spec_.residual ? cotangents[out + 1] : mx::zeros_like(s, stream());
      if (spec_.clamp && s.dtype() == mx::float16) {
        ds = zero_where_saturated(ds, s, stream());
      }
      give_input(ds);
      for (auto parameter : {at.weight, at.bias, at.scale, at.shift, at.gate}) {
        if (wanted(parameter)) {
          give(parameter, mx::zeros_like(primals[parameter], stream()));
        }
      }
      continue;
    }
    auto cotangent = mx::astype(cotangents[out], dtype_, stream());
    OptionalArray sum_cotangent;
    if (spec_.residual) {
      sum_cotangent = mx::astype(cotangents[out + 1], s.dtype(), stream());
    }
    if (spec_.is_gated()) {
      auto found = gated_vjp(
          spec_,
          in,
          cotangent,
          {spec.input, spec.weight, wanted(at.gate)},
          stream());
      give_if(at.x, found.input);
      give_if(at.weight, found.weight);
      give_if(at.gate, found.gate);
      continue;
    }
    if (spec_.is_modulated()) {
      auto found = modulated_vjp(
          spec_,
          in,
          s,
          cotangent,
          sum_cotangent ? &*sum_cotangent : nullptr,
          {spec.input,
           spec.weight,
           spec.bias,
           wanted(at.scale),
           wanted(at.shift)},
          stream());
      if (found.input) {
        give_input(*found.input);
      }
      give_if(at.weight, found.weight);
      give_if(at.bias, found.bias);
      give_if(at.scale, found.scale);
      give_if(at.shift, found.shift);
      continue;
    }
    ParameterDtypes dtypes{
        .weight = primals[std::max(at.weight, 0)].dtype(),
        .bias = primals[std::max(at.bias, 0)].dtype()};
    auto found = norm_gradients(
        spec,
        {s, in.weight, cotangent, sum_cotangent ? &*sum_cotangent : nullptr},
        dtypes,
        stream());
    if (found.input) {
      give_input(*found.input);
    }
    give_if(at.weight, found.weight);
    give_if(at.bias, found.bias);
  }
  return gradients;
}

std::pair<Arrays, std::vector<int>> Norm::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto n_inputs = static_cast<int>(inputs.size());
  if (spec_.factor_of_sum && axes[NormPositions(spec_, 0).factor] >= 0) {
    // The kernel accepts one element, so each example's sum is made before it.
    auto apart = [this](const Arrays& in) {
      NormInputs of(spec_, in.data());
      auto sum = sum_of(spec_, of, stream());
      Arrays inputs;
      NormInputs(sum, nullptr, of.weight, of.bias, of.scale, of.shift)
          .append_to(inputs);
      auto spec = without_sum(spec_);
      return Arrays{make_norm(spec, dtype_, inputs, stream())[0], sum};
    };
    return with_leading_axes(mx::vmap(Function(apart), axes)(inputs));
  }
  int n_rows = 1 + spec_.residual;
  // Scale, shift, factor and gate.
  int first_broadcast = n_rows + spec_.weight + spec_.bias;
  bool parameters_batched = false;
  for (int i = 0; i < n_inputs; ++i) {
    auto input = i % spec_.n_inputs();
    parameters_batched |=
        input >= n_rows && input < first_broadcast && axes[i] >= 0;
  }
  if (parameters_batched) {
    // The kernel accepts one weight, so each example's is applied after it.
    auto split = [this, n_inputs](const Arrays& in) {
      Arrays outputs;
      for (int i = 0; i < n_inputs; i += spec_.n_inputs()) {
        auto group =
            split_norm(spec_, dtype_, NormInputs(spec_, &in[i]), stream());
        outputs.insert(outputs.end(), group.begin(), group.end());
      }
      return outputs;
    };
    return with_leading_axes(mx::vmap(Function(split), axes)(inputs));
  }

  auto batch = inputs;
  std::vector<int> without_batch; // groups, by their first input
  for (int i = 0; i < n_inputs; i += spec_.n_inputs()) {
    auto rows = with_leading_batch(
        Arrays(&inputs[i], &inputs[i] + n_rows),
        std::vector<int>(&axes[i], &axes[i] + n_rows),
        stream());
    std::copy(rows.begin(), rows.end(), batch.begin() + i);
    bool no_rows_batched =
        std::all_of(&axes[i], &axes[i] + n_rows, [](int a) { return a < 0; });
    for (int j = i + first_broadcast; j < i + spec_.n_inputs(); ++j) {
      if (axes[j] < 0) {
        continue;
      }
      batch[j] = with_leading_axis(inputs[j], axes[j], stream());
      std::vector<int> missing(batch[i].ndim() - batch[j].ndim());
      std::iota(missing.begin(), missing.end(), 1);
      batch[j] = expand_in_turn(batch[j], missing, stream());
      for (int row = i; no_rows_batched && row < i + n_rows; ++row) {
        batch[row] = broadcast_batch(batch[row], batch[j], stream());
      }
      no_rows_batched = false;
    }
    if (no_rows_batched) {
      without_batch.push_back(i);
    }
  }
  auto outputs = array::make_arrays(
      output_shapes(batch),
      output_dtypes(batch),
      std::make_shared<Norm>(stream(), spec_, dtype_),
      batch);
  for (auto i : without_batch) {
    // It was normalized once, as a batch of one; the other tensor has the
    // batch.
    auto out = i / spec_.n_inputs() * spec_.n_outputs();
    auto other = i == 0 ? spec_.n_inputs() : 0;
    for (int j = out; j < out + spec_.n_outputs(); ++j) {
      outputs[j] = broadcast_batch(outputs[j], batch[other], stream());
    }
  }
  return with_leading_axes(std::move(outputs));
}

const char* Norm::name() const {
  if (spec_.l2) {
    return "mlx_norms::L2Norm";
  }
  if (spec_.residual) {
    return spec_.center ? "mlx_norms::AddLayerNorm" : "mlx_norms::AddRMSNorm";
  }
  return spec_.center ? "mlx_norms::LayerNorm" : "mlx_norms::RMSNorm";
}

bool Norm::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const Norm&>(other);
  return spec_ == o.spec_ && dtype_ == o.dtype_ && merging_.into(o.merging_);
}

void Norm::check_shapes(const Arrays& inputs) const {
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    NormInputs in(spec_, &inputs[i]);
    if (in.residual) {
      check_same_shape(name(), "residual", *in.residual, in.x);
    }
    if (in.weight) {
      check_head_weight(name(), "weight", *in.weight, "x", in.x);
    }
    if (in.bias) {
      check_vector(name(), "bias", *in.bias, in.x);
    }
    if (in.scale) {
      check_broadcasts(name(), "scale", *in.scale, in.x);
    }
    if (in.shift) {
      check_broadcasts(name(), "shift", *in.shift, in.x);
    }
    if (spec_.factor_of_sum) {
      check_one_element(name(), "factor", *in.factor);
    } else if (in.factor) {
      check_broadcasts(name(), "factor", *in.factor, in.x);
    }
    if (in.gate) { // of a batch of examples it may be the same for each
      check_broadcasts(name(), "gate", *in.gate, in.x);
    }
  }
}

std::vector<mx::Shape> Norm::output_shapes(const Arrays& inputs) {
  std::vector<mx::Shape> shapes;
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    shapes.insert(shapes.end(), spec_.n_outputs(), inputs[i].shape());
  }
  return shapes;
}

std::vector<mx::Dtype> Norm::output_dtypes(const Arrays& inputs) const {
  std::vector<mx::Dtype> dtypes;
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    NormInputs in(spec_, &inputs[i]);
    dtypes.push_back(dtype_);
    if (in.residual) {
      dtypes.push_back(mx::result_type(in.x, *in.residual));
    }
  }
  return dtypes;
}

} // namespace mlx_norms
