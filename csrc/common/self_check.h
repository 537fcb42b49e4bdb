// Copyright © 2026 mlx_norms contributors
//
// The Metal kernels were tested on a simulator of the GPU, which knows nothing
// of its compiler. So each specialization (op, dtypes, flags, row length) is
// run on a sample from its op before its first use, and compared with MLX's
// ops; and once more with donated inputs. A specialization that disagrees, or
// that causes a GPU fault, is not used; a warning says what to report. Before
// MLX 0.32.0 a fault ends the process. How operands lie in memory is only known
// in eval: what is strided or not aligned is checked there (csrc/op/run.h).
// MLX_NORMS_SELF_CHECK=0 turns this off.

#pragma once

#include <string>
#include <string_view>

#include "csrc/common/types.h"

namespace mlx_norms::self_check {

// The inputs that a specialization is run on, made anew at each call with the
// same values, and the outputs of the kernel and of MLX's ops.
struct Sample {
  std::function<Arrays(mx::Stream)> inputs;
  std::function<Arrays(Arrays, mx::Stream)> ours;
  std::function<Arrays(const Arrays&, mx::Stream)> theirs;
  bool donates;        // whether an output can use an input's buffer
  bool copies = false; // whether operands are copied before they are read
};

// Values of about 1, the same at every call; if `large`, some are near
// float16's largest. Every other row has a mean of about 0, for which LayerNorm
// needs fewer steps.
array values(
    const mx::Shape& shape,
    mx::Dtype dtype,
    uint32_t seed,
    bool large,
    mx::Stream stream);

// "of mlx_norms::RMSNorm (float32, float32, to float16, rows of 64)"
std::string described(const char* op, const Arrays& inputs, mx::Dtype output);

// The key of a specialization: its op, and numbers that the op chooses.
struct Key {
  std::string_view op; // a literal
  std::vector<int64_t> numbers;

  auto operator<=>(const Key&) const = default;
};

// Whether kernels are checked.
bool enabled();

// Whether the key's kernel can be used, if it has been checked.
std::optional<bool> known(const Key& key);

constexpr const char* kByMlx = "MLX's operations are";

// Checks the kernel, unless that has failed for other reasons lately. A warning
// calls it `kernel`, and says what is used instead.
bool passes(
    const Key& key,
    mx::Device device,
    const Sample& sample,
    const std::string& kernel,
    const char* instead);

// Whether the kernel can be used. Only the first call for a key needs
// sample() and kernel().
template <typename F, typename G>
bool agrees(
    const Key& key,
    mx::Device device,
    F sample,
    G kernel,
    const char* instead = kByMlx) {
  if (!enabled()) {
    return true;
  }
  auto verdict = known(key);
  return verdict ? *verdict : passes(key, device, sample(), kernel(), instead);
}

// Whether this thread runs a check, and one whose operands are copied.
bool is_running();
bool copies_operands();

// Notes that a check, if this thread runs one, launches a kernel.
void note_launch(const void* kernel);

// Whether a check that agreed has launched it.
bool has_launched(const void* kernel);

} // namespace mlx_norms::self_check
