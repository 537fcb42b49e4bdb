// Copyright © 2026 mlx_norms contributors

#include "csrc/self_check.h"

#include <cstdlib>
#include <map>
#include <mutex>

#include "csrc/checks.h"
#include "csrc/compose.h"
#include "csrc/interpreter.h"

namespace mlx_norms {

namespace {

using Key = std::vector<int64_t>;

// Why a specialisation is not used; empty: it is.
using Verdict = std::string;

bool enabled() {
  static const bool on = [] {
    auto* value = std::getenv("MLX_NORMS_SELF_CHECK");
    return !value || std::string(value) != "0";
  }();
  return on;
}

// `parameter(i)` says whether the i-th input is a weight or bias.
template <typename F>
Key key_of(const NormSpec& spec, const Arrays& inputs, F parameter) {
  Key key{
      spec.centre,
      spec.residual,
      spec.weight,
      spec.bias,
      spec.clamp,
      static_cast<int64_t>(spec.rounding),
      spec.weight_offset != 0,
      inputs[0].shape(-1)};
  for (size_t i = 0; i < inputs.size(); ++i) {
    key.push_back(static_cast<int64_t>(inputs[i].dtype().val()));
    key.push_back(parameter(i) && inputs[i].ndim() == 2); // of several heads
  }
  return key;
}

// Values about 1, the same at every call.
array values(const mx::Shape& shape, mx::Dtype dtype, uint32_t seed) {
  int64_t size = 1;
  for (auto n : shape) {
    size *= n;
  }
  std::vector<float> data(size);
  uint32_t state = seed;
  for (auto& value : data) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 0x1p23f - 0.75f;
  }
  array a(data.begin(), shape, mx::float32);
  return mx::astype(a, dtype, mx::Device::cpu);
}

// Few rows of as many heads as show that each takes its own weight.
constexpr int kRows = 2;
constexpr int kHeads = 2;

// Arrays like these inputs, of a few rows.
template <typename F>
Arrays few_rows(const Arrays& inputs, F parameter) {
  Arrays few;
  int length = inputs[0].shape(-1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    mx::Shape shape{kRows, kHeads, length};
    if (parameter(i)) {
      shape =
          inputs[i].ndim() == 2 ? mx::Shape{kHeads, length} : mx::Shape{length};
    }
    few.push_back(values(shape, inputs[i].dtype(), 17 * i + 1));
  }
  return few;
}

// How far results may lie from MLX's ops, relative to 1 + |value|: these round
// more often, and do not add pairwise.
float tolerance(mx::Dtype dtype) {
  return dtype == mx::float32 ? 1e-3f : dtype == mx::float16 ? 1e-2f : 5e-2f;
}

Verdict compare(const Arrays& ours, const Arrays& theirs, mx::Stream stream) {
  for (size_t i = 0; i < ours.size(); ++i) {
    auto a = mx::astype(ours[i], mx::float32, stream);
    auto b = mx::astype(theirs[i], mx::float32, stream);
    auto error = mx::divide(
        mx::abs(mx::subtract(a, b, stream), stream),
        mx::add(mx::abs(b, stream), array(1.0f), stream),
        stream);
    float most = mx::max(error, stream).item<float>();
    float allowed = tolerance(ours[i].dtype());
    if (!(most <= allowed)) {
      return "output " + std::to_string(i) + " is off by " + text(most) +
          " where " + text(allowed) + " is allowed";
    }
  }
  return {};
}

// Runs both outside of whatever is being traced.
template <typename Ours, typename Theirs>
Verdict run(Ours ours, Theirs theirs, mx::Stream stream) {
  Verdict verdict;
  without_interpreter([&] {
    try {
      verdict = compare(ours(), theirs(), stream);
    } catch (const std::exception& e) {
      verdict = e.what();
    }
  });
  return verdict;
}

// The verdict on `key`, found by `check` when it is first asked for.
template <typename F>
bool trusted(
    Key key,
    const char* name,
    const Arrays& inputs,
    mx::Dtype dtype,
    F check) {
  static std::mutex mutex;
  static auto* verdicts = new std::map<Key, Verdict>();
  {
    std::lock_guard lock(mutex);
    if (auto it = verdicts->find(key); it != verdicts->end()) {
      return it->second.empty();
    }
  }
  // Not under the lock: two threads may both check, which does no harm.
  Verdict verdict = check();
  bool first;
  {
    std::lock_guard lock(mutex);
    first = verdicts->emplace(std::move(key), verdict).second;
  }
  if (!verdict.empty() && first) {
    std::string dtypes;
    for (const auto& a : inputs) {
      dtypes += text(a.dtype()) + ", ";
    }
    warn(
        std::string("[mlx_norms] The Metal kernel of ") + name + " (" + dtypes +
        "to " + text(dtype) + ", rows of " +
        std::to_string(inputs[0].shape(-1)) +
        ") failed its check and is not used; MLX's operations are. Please "
        "report this with the output of `python -m mlx_norms selftest`: " +
        verdict);
  }
  return verdict.empty();
}

} // namespace

bool agrees(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  if (!enabled() || inputs[0].shape(-1) == 0) {
    return true;
  }
  auto parameter = [&](size_t i) {
    return static_cast<int>(i) % spec.n_inputs() > spec.residual;
  };
  auto key = key_of(spec, inputs, parameter);
  key.push_back(static_cast<int64_t>(dtype.val()));
  Norm named(stream, spec, dtype);
  return trusted(std::move(key), named.name(), inputs, dtype, [&] {
    auto few = few_rows(inputs, parameter);
    auto ours = [&] {
      auto node = std::make_shared<Norm>(stream, spec, dtype);
      std::vector<mx::Dtype> dtypes;
      for (size_t i = 0; i < few.size(); i += spec.n_inputs()) {
        NormInputs in(spec, &few[i]);
        dtypes.push_back(dtype);
        if (spec.residual) {
          dtypes.push_back(mx::result_type(in.x, *in.residual));
        }
      }
      auto shapes = node->output_shapes(few);
      return array::make_arrays(std::move(shapes), dtypes, node, few);
    };
    auto theirs = [&] {
      Arrays outputs;
      for (size_t i = 0; i < few.size(); i += spec.n_inputs()) {
        NormInputs in(spec, &few[i]);
        auto group = compose_norm(spec, dtype, in, stream);
        outputs.insert(outputs.end(), group.begin(), group.end());
      }
      return outputs;
    };
    return run(ours, theirs, stream);
  });
}

bool agrees(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream) {
  if (!enabled() || inputs[0].shape(-1) == 0) {
    return true;
  }
  auto parameter = [&](size_t i) { return spec.norm.weight && i == 1; };
  auto key = key_of(spec.norm, inputs, parameter);
  for (auto flag : {spec.input, spec.weight, spec.bias}) {
    key.push_back(flag);
  }
  for (auto dtype : dtypes) {
    key.push_back(static_cast<int64_t>(dtype.val()));
  }
  key.push_back(-1); // not a forward's key
  NormVJP named(stream, spec, dtypes);
  return trusted(std::move(key), named.name(), inputs, dtypes[0], [&] {
    auto few = few_rows(inputs, parameter);
    auto ours = [&] {
      auto node = std::make_shared<NormVJP>(stream, spec, dtypes);
      auto shapes = node->output_shapes(few);
      return array::make_arrays(std::move(shapes), dtypes, node, few);
    };
    auto theirs = [&] {
      NormVJPInputs in(spec.norm, few.data());
      return compose_norm_vjp(spec, dtypes, in, stream);
    };
    return run(ours, theirs, stream);
  });
}

} // namespace mlx_norms
