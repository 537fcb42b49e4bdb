// Copyright © 2026 mlx_norms contributors

#include "csrc/norm.h"

#include <algorithm>

#include "csrc/compose.h"

namespace mlx_norms {

namespace {

using Function = std::function<Arrays(const Arrays&)>;
using OptionalArray = std::optional<array>;

[[noreturn]] void no_gpu_kernel(const char* name) {
  // The ops put no node on a GPU stream.
  throw std::runtime_error(
      std::string("[") + name + "] has no kernel for this GPU.");
}

// Where a tensor's operands stand among a primitive's inputs; -1: absent.
struct Positions {
  int x, residual, weight, bias;

  Positions(const NormSpec& spec, int first)
      : x(first++),
        residual(spec.residual ? first++ : -1),
        weight(spec.weight ? first++ : -1),
        bias(spec.bias ? first++ : -1) {}
};

// The place of i in argnums; -1: not there.
int place_of(int i, const std::vector<int>& argnums) {
  auto it = std::find(argnums.begin(), argnums.end(), i);
  return it == argnums.end() ? -1 : it - argnums.begin();
}

// --- A norm without weight and bias, to split a transform into ---------------

NormSpec bare(NormSpec spec) {
  spec.weight = spec.bias = false;
  spec.weight_offset = 0.0f;
  return spec;
}

// {normalised in dtype, [sum]}
Arrays bare_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream) {
  auto node = std::make_shared<Norm>(stream, bare(spec), dtype);
  if (!spec.residual) {
    return {array(in.x.shape(), dtype, std::move(node), {in.x})};
  }
  return array::make_arrays(
      {in.x.shape(), in.x.shape()},
      {dtype, mx::result_type(in.x, *in.residual)},
      std::move(node),
      {in.x, *in.residual});
}

// The normalised rows of s, in float32.
array bare_norm(NormSpec spec, const array& s, mx::Stream stream) {
  spec.residual = false;
  NormInputs in(bare(spec), &s);
  return bare_norm(spec, mx::float32, in, stream)[0];
}

// The Jacobian of the normalised rows, which is symmetric, times a; plus the
// sum's cotangent, if there is one.
array bare_norm_vjp(
    const NormSpec& spec,
    mx::Dtype dtype,
    const array& s,
    const array& a,
    const array* sum_cotangent,
    mx::Stream stream) {
  NormVJPSpec vjp{.norm = bare(spec), .input = true};
  vjp.norm.residual = sum_cotangent != nullptr;
  Arrays inputs{s, a};
  if (sum_cotangent) {
    inputs.push_back(*sum_cotangent);
  }
  std::vector<mx::Dtype> dtypes{dtype};
  auto node = std::make_shared<NormVJP>(stream, vjp, dtypes);
  return array(s.shape(), dtype, std::move(node), std::move(inputs));
}

// Norm with weight and bias applied by MLX's ops.
Arrays split_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream) {
  bool early = spec.rounding == Rounding::Early;
  auto outputs = bare_norm(spec, early ? dtype : mx::float32, in, stream);
  auto y = apply_parameters(spec, outputs[0], in, stream);
  outputs[0] = mx::astype(y, dtype, stream);
  return outputs;
}

// NormVJP with weights applied and sums over rows taken by MLX's ops.
Arrays split_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const NormVJPInputs& in,
    mx::Stream stream) {
  auto g = mx::astype(in.cotangent, mx::float32, stream);
  auto dtype = dtypes.begin();
  Arrays gradients;
  if (spec.input) {
    auto wg = in.weight
        ? mx::multiply(g, shifted_weight(spec.norm, *in.weight, stream), stream)
        : g;
    gradients.push_back(
        bare_norm_vjp(spec.norm, *dtype++, in.s, wg, in.sum_cotangent, stream));
  }
  if (spec.weight) {
    auto gn = mx::multiply(g, bare_norm(spec.norm, in.s, stream), stream);
    auto sum = sum_over_rows(gn, in.weight->ndim(), stream);
    gradients.push_back(mx::astype(sum, *dtype++, stream));
  }
  if (spec.bias) {
    auto sum = sum_over_rows(g, 1, stream);
    gradients.push_back(mx::astype(sum, *dtype++, stream));
  }
  return gradients;
}

// --- vmap --------------------------------------------------------------------

int batch_size(const Arrays& inputs, const std::vector<int>& axes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (axes[i] >= 0) {
      return inputs[i].shape(axes[i]);
    }
  }
  return 1;
}

// a with a batch axis of this size in front: moved there, or broadcast.
array batched(const array& a, int axis, int size, mx::Stream s) {
  if (axis >= 0) {
    return axis == 0 ? a : mx::moveaxis(a, axis, 0, s);
  }
  auto shape = a.shape();
  shape.insert(shape.begin(), size);
  return mx::broadcast_to(a, shape, s);
}

std::pair<Arrays, std::vector<int>> with_leading_axes(Arrays outputs) {
  std::vector<int> axes(outputs.size(), 0);
  return {std::move(outputs), std::move(axes)};
}

} // namespace

// --- Norm
// ----------------------------------------------------------------------

void Norm::eval_gpu(const Arrays&, Arrays&) {
  no_gpu_kernel(name());
}

Arrays Norm::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto tangent_of = [&](int i) -> const array* {
    auto place = place_of(i, argnums);
    return place < 0 ? nullptr : &tangents[place];
  };
  Arrays outputs;
  auto n_primals = static_cast<int>(primals.size());
  for (int i = 0; i < n_primals; i += spec_.n_inputs()) {
    NormInputs in(spec_, &primals[i]);
    Positions at(spec_, i);
    auto s =
        spec_.residual ? bare_norm(spec_, mx::float32, in, stream())[1] : in.x;

    OptionalArray ds, dy;
    auto add = [&](OptionalArray& total, const array& term) {
      total = total ? mx::add(*total, term, stream()) : term;
    };
    for (auto* t : {tangent_of(at.x), tangent_of(at.residual)}) {
      if (t) {
        add(ds, mx::astype(*t, s.dtype(), stream()));
      }
    }
    if (ds && spec_.clamp && s.dtype() == mx::float16) {
      ds = zero_where_saturated(*ds, s, stream());
    }
    if (ds) {
      auto dn = bare_norm_vjp(spec_, mx::float32, s, *ds, nullptr, stream());
      auto no_bias = spec_;
      no_bias.bias = false;
      add(dy, apply_parameters(no_bias, dn, in, stream()));
    }
    if (auto* dw = tangent_of(at.weight)) {
      auto n = bare_norm(spec_, s, stream());
      add(dy, mx::multiply(n, *dw, stream()));
    }
    if (auto* db = tangent_of(at.bias)) {
      add(dy, mx::broadcast_to(*db, s.shape(), stream()));
    }
    outputs.push_back(
        dy ? mx::astype(*dy, dtype_, stream())
           : mx::zeros(s.shape(), dtype_, stream()));
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
    Positions at(spec_, i);
    NormVJPSpec spec{.norm = spec_};
    spec.input = wanted(at.x) || wanted(at.residual);
    spec.weight = wanted(at.weight);
    spec.bias = wanted(at.bias);

    const auto& s = spec_.residual ? outputs[out + 1] : primals[at.x];
    Arrays inputs{s};
    if (spec_.weight) {
      inputs.push_back(primals[at.weight]);
    }
    inputs.push_back(mx::astype(cotangents[out], dtype_, stream()));
    if (spec_.residual) {
      inputs.push_back(mx::astype(cotangents[out + 1], s.dtype(), stream()));
    }

    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    auto want = [&](bool flag, const array& like) {
      if (flag) {
        shapes.push_back(like.shape());
        dtypes.push_back(like.dtype());
      }
    };
    want(spec.input, s);
    want(spec.weight, primals[std::max(at.weight, 0)]);
    want(spec.bias, primals[std::max(at.bias, 0)]);
    if (shapes.empty()) {
      continue;
    }
    auto node = std::make_shared<NormVJP>(stream(), spec, dtypes);
    auto results =
        array::make_arrays(std::move(shapes), dtypes, std::move(node), inputs);
    auto next = results.begin();
    if (spec.input) {
      give(at.x, *next);
      give(at.residual, *next++);
    }
    if (spec.weight) {
      give(at.weight, *next++);
    }
    if (spec.bias) {
      give(at.bias, *next++);
    }
  }
  return gradients;
}

std::pair<Arrays, std::vector<int>> Norm::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto n_inputs = static_cast<int>(inputs.size());
  auto rows = inputs;
  bool parameters_batched = false;
  for (int i = 0; i < n_inputs; i += spec_.n_inputs()) {
    Positions at(spec_, i);
    for (auto j : {at.x, at.residual}) {
      if (j >= 0) {
        rows[j] =
            batched(inputs[j], axes[j], batch_size(inputs, axes), stream());
      }
    }
    for (auto j : {at.weight, at.bias}) {
      parameters_batched |= j >= 0 && axes[j] >= 0;
    }
  }
  if (parameters_batched) {
    // The kernel takes one weight, so each example's is applied after it.
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
  std::vector<mx::Dtype> dtypes;
  for (int i = 0; i < n_inputs; i += spec_.n_inputs()) {
    NormInputs in(spec_, &rows[i]);
    dtypes.push_back(dtype_);
    if (spec_.residual) {
      dtypes.push_back(mx::result_type(in.x, *in.residual));
    }
  }
  return with_leading_axes(
      array::make_arrays(
          output_shapes(rows),
          dtypes,
          std::make_shared<Norm>(stream(), spec_, dtype_),
          rows));
}

const char* Norm::name() const {
  if (spec_.residual) {
    return spec_.centre ? "mlx_norms::AddLayerNorm" : "mlx_norms::AddRMSNorm";
  }
  return spec_.centre ? "mlx_norms::LayerNorm" : "mlx_norms::RMSNorm";
}

bool Norm::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const Norm&>(other);
  return spec_ == o.spec_ && dtype_ == o.dtype_;
}

std::vector<mx::Shape> Norm::output_shapes(const Arrays& inputs) {
  std::vector<mx::Shape> shapes;
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    shapes.insert(shapes.end(), spec_.n_outputs(), inputs[i].shape());
  }
  return shapes;
}

// --- NormVJP
// -------------------------------------------------------------------

namespace {

// The gradients in MLX's ops, as a function of the inputs in argnums alone.
Function composed_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    const std::vector<int>& argnums,
    mx::Stream stream) {
  return [=](const Arrays& free) {
    auto all = inputs;
    for (size_t i = 0; i < argnums.size(); ++i) {
      all[argnums[i]] = free[i];
    }
    NormVJPInputs in(spec.norm, all.data());
    return compose_norm_vjp(spec, dtypes, in, stream);
  };
}

Arrays select(const Arrays& arrays, const std::vector<int>& indices) {
  Arrays selected;
  for (auto i : indices) {
    selected.push_back(arrays[i]);
  }
  return selected;
}

} // namespace

void NormVJP::eval_gpu(const Arrays&, Arrays&) {
  no_gpu_kernel(name());
}

Arrays NormVJP::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = composed_vjp(spec_, dtypes_, primals, argnums, stream());
  return mx::jvp(f, select(primals, argnums), tangents).second;
}

Arrays NormVJP::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  auto f = composed_vjp(spec_, dtypes_, primals, argnums, stream());
  return mx::vjp(f, select(primals, argnums), cotangents).second;
}

std::pair<Arrays, std::vector<int>> NormVJP::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  // The kernel sums a parameter's gradient over all rows, not over those of
  // each example, and takes one weight.
  bool weight_batched = spec_.norm.weight && axes[1] >= 0;
  if (weight_batched || spec_.weight || spec_.bias) {
    auto split = [this](const Arrays& in) {
      NormVJPInputs named(spec_.norm, in.data());
      return split_norm_vjp(spec_, dtypes_, named, stream());
    };
    return with_leading_axes(mx::vmap(Function(split), axes)(inputs));
  }
  auto size = batch_size(inputs, axes);
  auto rows = inputs;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    if (!(spec_.norm.weight && i == 1)) {
      rows[i] = batched(inputs[i], axes[i], size, stream());
    }
  }
  return with_leading_axes(
      array::make_arrays(
          {rows[0].shape()},
          dtypes_,
          std::make_shared<NormVJP>(stream(), spec_, dtypes_),
          rows));
}

bool NormVJP::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const NormVJP&>(other);
  return spec_ == o.spec_ && dtypes_ == o.dtypes_;
}

std::vector<mx::Shape> NormVJP::output_shapes(const Arrays& inputs) {
  NormVJPInputs in(spec_.norm, inputs.data());
  std::vector<mx::Shape> shapes;
  if (spec_.input) {
    shapes.push_back(in.s.shape());
  }
  if (spec_.weight) {
    shapes.push_back(in.weight->shape());
  }
  if (spec_.bias) {
    shapes.push_back({in.s.shape(-1)});
  }
  return shapes;
}

} // namespace mlx_norms
