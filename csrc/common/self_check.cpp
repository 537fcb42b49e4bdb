// Copyright © 2026 mlx_norms contributors

#include "csrc/common/self_check.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "csrc/common/check_stream.h"
#include "csrc/common/checks.h"
#include "csrc/common/interpreter.h"
#include "csrc/common/kernel_error.h"
#include "csrc/linear/plan.h"
#include "csrc/matmul/primitive.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/nodes.h"

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

// The flags of a spec with values that harm no result.
NormSpec flags_of(NormSpec spec) {
  spec.eps = 1e-5f;
  spec.weight_offset = spec.weight_offset != 0 ? 1.0f : 0.0f;
  return spec;
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

// Values about 1, the same at every call; some are near float16's largest.
// Every other row has a mean of about 0, with which LayerNorm takes fewer
// steps.
array values(
    const mx::Shape& shape,
    mx::Dtype dtype,
    uint32_t seed,
    bool large,
    mx::Stream stream) {
  int64_t size = 1;
  for (auto n : shape) {
    size *= n;
  }
  std::vector<float> data(size);
  uint32_t state = seed;
  for (int64_t i = 0; i < size; ++i) {
    state = state * 1664525u + 1013904223u;
    float shift = i / shape.back() % 2 == 0 ? 0.75f : 1.0f;
    float value = static_cast<float>(state >> 8) / 0x1p23f - shift;
    data[i] = large && i % 7 == 0 ? std::copysign(6e4f, value) : value;
  }
  array a(data.begin(), shape, mx::float32);
  return mx::astype(a, dtype, stream);
}

constexpr int kHeads = 2;

// Arrays like these inputs, of few rows of two heads each.
template <typename F>
Arrays few_rows(
    const Arrays& inputs,
    int rows,
    bool large,
    F parameter,
    mx::Stream s) {
  Arrays few;
  int length = inputs[0].shape(-1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    mx::Shape shape{rows, kHeads, length};
    if (parameter(i)) {
      shape =
          inputs[i].ndim() == 2 ? mx::Shape{kHeads, length} : mx::Shape{length};
    }
    few.push_back(values(
        shape, inputs[i].dtype(), 17 * i + 1, large && !parameter(i), s));
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

// What a specialisation is tried on, made anew at each call with the same
// values; and the outputs of the kernel and of MLX's ops.
struct Trial {
  std::function<Arrays(mx::Stream)> inputs;
  std::function<Arrays(Arrays, mx::Stream)> ours;
  std::function<Arrays(const Arrays&, mx::Stream)> theirs;
  bool donates; // whether an output can take the buffer of an input
};

// A verdict, or why there is none: what went wrong is not the kernel's fault.
struct Outcome {
  std::optional<Verdict> verdict;
  std::string reason;
};

// MLX has no type for it. Memory is no kernel's fault, nor is the fault of
// another that ran at that time.
bool is_fault(const std::string& text) {
  auto says = [&](const char* part) {
    return text.find(part) != std::string::npos;
  };
  return text.starts_with("[METAL] Command buffer execution failed") &&
      !says("nsufficient Memory") && !says("OutOfMemory") &&
      !says("InnocentVictim");
}

Verdict try_out(const Trial& trial, mx::Stream stream, const Arrays& theirs) {
  auto inputs = trial.inputs(stream);
  auto verdict = compare(trial.ours(inputs, stream), theirs, stream);
  if (!verdict.empty() || !trial.donates) {
    return verdict;
  }
  // Again with inputs that nobody else holds, whose buffers become the
  // outputs'.
  inputs.clear();
  auto donated = trial.ours(trial.inputs(stream), stream);
  verdict = compare(donated, theirs, stream);
  return verdict.empty() ? verdict : verdict + " (in the inputs' buffers)";
}

Outcome judge(mx::Device device, const Trial& trial) {
  Outcome outcome;
  on_check_stream(device, [&](mx::Stream stream) {
    bool is_ours = false;
    try {
      auto inputs = trial.inputs(stream);
      auto theirs = trial.theirs(inputs, stream);
      mx::eval(theirs);
      inputs.clear();
      is_ours = true;
      outcome.verdict = try_out(trial, stream, theirs);
    } catch (const std::exception& e) {
      outcome.reason = e.what();
      bool is_bad = dynamic_cast<const KernelError*>(&e) ||
          (is_ours && is_fault(outcome.reason));
      if (is_bad) {
        outcome.verdict = outcome.reason;
      }
      try {
        mx::synchronize(stream); // which clears the stream's error
      } catch (const std::exception&) {
      }
    }
  });
  return outcome;
}

void report(
    const Verdict& verdict,
    const char* name,
    const Arrays& inputs,
    mx::Dtype dtype) {
  std::string dtypes;
  for (const auto& a : inputs) {
    dtypes += text(a.dtype()) + ", ";
  }
  warn(
      std::string("[mlx_norms] The Metal kernel of ") + name + " (" + dtypes +
      "to " + text(dtype) + ", rows of " + std::to_string(inputs[0].shape(-1)) +
      ") failed its check and is not used; MLX's operations are. Please "
      "report this with the output of `python -m mlx_norms selftest`: " +
      verdict);
}

// Checks without a verdict after which there is one: bad.
constexpr int kMostMisses = 3;

// Whether the verdict on `key` is good. It is found by a trial when it is first
// asked for, and `tell` says it if it is bad.
template <typename F, typename G>
bool trusted(Key key, mx::Device device, F trial, G tell) {
  static std::mutex mutex;
  static auto* verdicts = new std::map<Key, Verdict>();
  static auto* misses = new std::map<Key, int>();
  static auto* told = new std::set<Verdict>(); // a reason is said once
  {
    std::lock_guard lock(mutex);
    if (auto it = verdicts->find(key); it != verdicts->end()) {
      return it->second.empty();
    }
  }
  // Not under the lock: two threads may both check, which does no harm.
  auto [verdict, reason] = judge(device, trial());
  bool is_new;
  {
    std::lock_guard lock(mutex);
    if (!verdict) {
      if (++(*misses)[key] < kMostMisses) {
        return false; // this time
      }
      verdict = "no verdict in " + std::to_string(kMostMisses) +
          " checks; the last ended with: " + reason;
    }
    is_new = verdicts->emplace(std::move(key), *verdict).second &&
        told->insert(*verdict).second;
  }
  if (!verdict->empty() && is_new) {
    tell(*verdict);
  }
  return verdict->empty();
}

Key key_of(const NormLinearSpec& spec, const Arrays& inputs) {
  auto key = key_of(spec.norm, inputs, [](size_t) { return false; });
  key.push_back(inputs[0].size() / inputs[0].shape(-1));
  for (const auto& p : spec.projections) {
    key.insert(key.end(), {p.bits, p.group_size, p.bias});
  }
  for (size_t i = spec.norm.n_inputs(); i < inputs.size(); ++i) {
    key.push_back(std::min(inputs[i].shape(0), kManyOutputs));
  }
  key.push_back(spec.gated);
  key.push_back(-2); // not a norm's key
  return key;
}

// A weight like that of p, in the arrays that it is stored in, with no more
// outputs than make a difference. It is made where it is used.
Arrays weight_like(
    const Projection& p,
    const array& weight,
    const array& x,
    uint64_t seed,
    mx::Stream s) {
  int length = x.shape(-1);
  float most = 1.0f / std::sqrt(static_cast<float>(length));
  auto w = mx::random::uniform(
      -most,
      most,
      {std::min(weight.shape(0), kManyOutputs), length},
      x.dtype(),
      mx::random::key(seed),
      s);
  if (!p.bits) {
    return {w};
  }
  return mx::quantize(w, p.group_size, p.bits, "affine", std::nullopt, s);
}

// Arrays like the inputs of a norm and its projections.
Arrays
arrays_like(const NormLinearSpec& spec, const Arrays& inputs, mx::Stream s) {
  Arrays like;
  const auto& x = inputs[0];
  auto length = x.shape(-1);
  mx::Shape rows{static_cast<int>(x.size() / length), length};
  for (int i = 0; i < spec.norm.n_inputs(); ++i) {
    bool parameter = i > spec.norm.residual;
    like.push_back(values(
        parameter ? mx::Shape{length} : rows,
        inputs[i].dtype(),
        17 * i + 1,
        /* large= */ false,
        s));
  }
  for (const auto& p : spec.projections) {
    auto first = like.size();
    auto weight = weight_like(p, inputs[first], x, first, s);
    like.insert(like.end(), weight.begin(), weight.end());
    if (p.bias) {
      const auto& bias = inputs[like.size()];
      mx::Shape shape{std::min(bias.shape(0), kManyOutputs)};
      like.push_back(values(shape, bias.dtype(), first, false, s));
    }
  }
  return like;
}

// Of neighbors in a list.
template <typename F>
Arrays products(const Arrays& pairs, F product) {
  Arrays all;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    all.push_back(product(pairs[i], pairs[i + 1]));
  }
  return all;
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
  auto flags = flags_of(spec);
  auto trial = [&] {
    return Trial{
        [&](mx::Stream s) {
          return few_rows(inputs, 2, spec.clamp, parameter, s);
        },
        [&](Arrays few, mx::Stream s) {
          return norm_node(flags, dtype, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          return compose_norms(flags, dtype, few, s);
        },
        /* donates= */ true};
  };
  return trusted(
      std::move(key), stream.device, trial, [&](const Verdict& verdict) {
        report(verdict, Norm(stream, spec, dtype).name(), inputs, dtype);
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
  auto flags = spec;
  flags.norm = flags_of(spec.norm);
  auto trial = [&] {
    return Trial{
        // Enough rows that parameters' gradients are sums of several partial
        // ones.
        [&](mx::Stream s) {
          return few_rows(inputs, 20, /* large= */ false, parameter, s);
        },
        [&](Arrays few, mx::Stream s) {
          return norm_vjp_node(flags, dtypes, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          NormVJPInputs in(flags.norm, few.data());
          return compose_norm_vjp(flags, dtypes, in, s);
        },
        /* donates= */ true};
  };
  return trusted(
      std::move(key), stream.device, trial, [&](const Verdict& verdict) {
        report(
            verdict, NormVJP(stream, spec, dtypes).name(), inputs, dtypes[0]);
      });
}

bool agrees(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream) {
  if (!enabled()) {
    return true;
  }
  auto flags = spec;
  flags.norm = flags_of(spec.norm);
  auto trial = [&] {
    return Trial{
        [&](mx::Stream s) { return arrays_like(flags, inputs, s); },
        [&](Arrays like, mx::Stream s) {
          return norm_linear_node(flags, std::move(like), s);
        },
        [&](const Arrays& like, mx::Stream s) {
          // MLX's quantised product may add up in the dtype that it is given.
          Arrays wide;
          for (const auto& a : like) {
            bool packed = a.dtype() == mx::uint32;
            wide.push_back(packed ? a : mx::astype(a, mx::float32, s));
          }
          return compose_norm_linear(flags, wide, s);
        },
        /* donates= */ false};
  };
  return trusted(
      key_of(spec, inputs), stream.device, trial, [&](const Verdict& verdict) {
        report(
            verdict,
            NormLinear(stream, spec).name(),
            inputs,
            inputs[0].dtype());
      });
}

bool agrees(mx::Dtype dtype, bool gemv, mx::Stream stream) {
  if (!enabled()) {
    return true;
  }
  const auto& kernel =
      *find_rung(product_kernels(), gemv ? "gemv" : "simdgroup_blocked");
  auto trial = [&] {
    return Trial{
        [&](mx::Stream s) {
          // Small tiles and large ones, whole and not; rows and vectors of each
          // number that gemv has; depths that several SIMD-groups share.
          std::vector<std::array<int, 3>> shapes = {
              {32, 32, 64}, {64, 128, 32}, {70, 67, 35}};
          if (gemv) {
            shapes = {{1, 40, 1100}, {2, 41, 104}, {4, 64, 520}, {7, 40, 35}};
          }
          Arrays pairs;
          for (const auto& [m, n, k] : shapes) {
            pairs.push_back(values({m, k}, dtype, m, false, s));
            pairs.push_back(values({k, n}, dtype, n, false, s));
            pairs.push_back(
                mx::transpose(values({k, m}, dtype, m, false, s), s));
            pairs.push_back(
                mx::transpose(values({n, k}, dtype, n, false, s), s));
          }
          return pairs;
        },
        [&](Arrays pairs, mx::Stream s) {
          return products(pairs, [&](const array& left, const array& right) {
            return product(kernel, left, right, s);
          });
        },
        [&](const Arrays& pairs, mx::Stream s) {
          return products(pairs, [&](const array& left, const array& right) {
            return mx::matmul(left, right, s);
          });
        },
        /* donates= */ false};
  };
  return trusted(
      {-2, gemv, static_cast<int64_t>(dtype.val())},
      stream.device,
      trial,
      [&](const Verdict& verdict) {
        warn(
            std::string("[mlx_norms] The Metal kernel ") + kernel.name + " (" +
            text(dtype) +
            ") failed its check and is not used; MLX's operations are. Please "
            "report this with the output of `python -m mlx_norms selftest`: " +
            verdict);
      });
}

} // namespace mlx_norms
