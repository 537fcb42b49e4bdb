// Copyright © 2026 mlx_norms contributors

#include "csrc/op/run.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <set>

#include "csrc/common/backend.h"
#include "csrc/common/interpreter.h"
#include "csrc/common/kernel_error.h"
#include "csrc/common/memory_layout.h"
#include "csrc/common/self_check.h"
#include "csrc/gpu/recorded.h"
#include "csrc/gpu/rows.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

// What is known of calls: of a fixed number, the latest ones.
template <typename Value>
class CallTable {
 public:
  // Null: nothing.
  const Value* find(const Op& op, const CallKey& key) const {
    for (const auto& call : set_of(key).calls) {
      if (call && call->key == key && call->op->equals(op)) {
        return &call->value;
      }
    }
    return nullptr;
  }

  // Takes the place of the oldest of its set, if that is full.
  void add(const OpPtr& op, const CallKey& key, Value value) {
    auto& set = set_of(key);
    set.calls[set.next++ % kWays] =
        std::make_unique<Call>(key, op, std::move(value));
  }

  // Whether such a call is one of the latest of its set that were not found.
  bool is_made_again(const CallKey& key) {
    auto& [calls, next, not_found, next_of_those] = set_of(key);
    bool is_known = std::ranges::find(not_found, key.hash()) != not_found.end();
    not_found[next_of_those++ % kWays] = key.hash();
    return is_known;
  }

 private:
  struct Call {
    CallKey key;
    OpPtr op;
    Value value;
  };
  static constexpr size_t kSets = 256;
  static constexpr size_t kWays = 4; // also of ops that differ in options alone
  struct Set {
    std::array<std::unique_ptr<Call>, kWays> calls;
    size_t next = 0;
    std::array<uint64_t, kWays> not_found{}; // hashes
    size_t next_of_those = 0;
  };

  const Set& set_of(const CallKey& key) const {
    return sets_[key.hash() % kSets];
  }
  Set& set_of(const CallKey& key) {
    return sets_[key.hash() % kSets];
  }

  std::array<Set, kSets> sets_;
};

// On which inputs an op's kernels are checked: dense ones, those that lie in
// memory as the call's do, or dense copies of these.
enum class Checked { Dense, AsGiven, Copied };

// The outputs that a self-check compares.
Arrays first_outputs(const Op& op, Arrays outputs) {
  outputs.erase(outputs.begin() + op.compared(), outputs.end());
  return outputs;
}

// Whether the op's kernels for these inputs agree with its reference on a
// sample, or there is none. The inputs are evaluated, unless it is dense.
bool passes_self_check(
    const Op& op,
    const Arrays& inputs,
    mx::Stream stream,
    Checked how) {
  if (op.is_empty(inputs)) {
    return true;
  }
  self_check::Key key{op.name(), {}};
  op.append_key(inputs, stream, key.numbers);
  auto append = [&](mx::Dtype dtype) {
    key.numbers.push_back(static_cast<int64_t>(dtype.val()));
  };
  for (const auto& input : inputs) {
    append(input.dtype());
  }
  std::for_each(op.dtypes.begin(), op.dtypes.end(), append);
  std::vector<MemoryLayout> layouts(inputs.size());
  if (how != Checked::Dense) {
    std::ranges::transform(inputs, layouts.begin(), MemoryLayout::of);
    if (std::ranges::count(layouts, MemoryLayout{}) != std::ssize(layouts)) {
      for (const auto& [offset, steps, axes, alignment] : layouts) {
        key.numbers.insert(key.numbers.end(), {offset, steps, axes, alignment});
      }
      key.numbers.push_back(how == Checked::Copied);
    }
  }
  auto sample = [&] {
    auto few = op.sampled(inputs, stream);
    bool donates = false;
    for (size_t i = 0; i < op.dtypes.size(); ++i) {
      for (auto* donor : op.donors(inputs, i, stream)) {
        donates |= donor != nullptr;
      }
    }
    return self_check::Sample{
        [&](mx::Stream s) {
          auto rows = op.sample(inputs, s);
          for (size_t i = 0; i < rows.size(); ++i) {
            rows[i] = laid_out(std::move(rows[i]), layouts[i], s);
          }
          return rows;
        },
        [few](Arrays rows, mx::Stream s) {
          return first_outputs(*few, node(few, std::move(rows), s));
        },
        [few](const Arrays& rows, mx::Stream s) {
          return first_outputs(*few, few->reference(rows, s));
        },
        donates,
        how == Checked::Copied};
  };
  return self_check::agrees(
      key,
      stream.device,
      sample,
      [&] { return self_check::described(op.name(), inputs, op.dtypes[0]); },
      how == Checked::AsGiven ? "strided or unaligned operands are copied"
                              : self_check::kByMlx);
}

bool is_aligned(const array& a) {
  return a.offset() % 16 == 0;
}

// Whether a self-check that agreed has launched all of the plan's kernels, or
// none is wanted.
bool is_checked(const LaunchPlan& plan) {
  if (backend_of(plan.stream) != Backend::Metal || !self_check::enabled() ||
      self_check::is_running()) {
    return true;
  }
  return std::ranges::all_of(plan.launches, [&](const Launch& launch) {
    return self_check::has_launched(kernel_of(launch, plan.stream));
  });
}

// Dense and aligned copies of the inputs that are not.
Arrays plain_inputs(const Op& op, const Arrays& inputs, mx::Stream stream) {
  LaunchPlan copies(stream);
  Arrays plain;
  for (const auto& a : inputs) {
    bool has_layout = a.ndim() > 0; // one element has none
    plain.push_back(
        has_layout && !(a.flags().row_contiguous && is_aligned(a))
            ? make_dense(a, copies)
            : a);
  }
  if (op.has_sample() && !is_checked(copies) &&
      !passes_self_check(op, inputs, stream, Checked::Copied)) {
    throw KernelError(
        "[mlx_norms] The Metal kernel that copies operands failed its check.");
  }
  encode(std::move(copies));
  return plain;
}

// Allocates outputs anew that are in a donated buffer and not aligned.
void align_outputs(Arrays& outputs, mx::Stream stream) {
  for (auto& out : outputs) {
    if (!is_aligned(out)) {
      gpu::allocate(out, stream);
    }
  }
}

// Warns, once for each text, that a kernel was refused for a layout.
void warn_of_layout(const KernelError& refused) {
  if (!refused.lasting) {
    return;
  }
  static std::mutex mutex;
  static auto& told = *new std::set<std::string>();
  {
    std::lock_guard lock(mutex);
    if (!told.insert(refused.what()).second) {
      return;
    }
  }
  warn(
      refused.what() +
      std::string(
          " It is for operands that are strided or not aligned, which are "
          "copied instead. Please report this with the output of `python -m "
          "mlx_norms selftest`."));
}

// Throws the error, with what the user can do: the graph that is evaluated
// holds the op, so MLX's operations cannot take its place.
[[noreturn]] void throw_to_user(const KernelError& error) {
  if (self_check::is_running()) {
    throw;
  }
  std::string text = error.what();
  text +=
      " MLX's operations cannot take its place, as the graph that is evaluated "
      "holds it. ";
  text += self_check::enabled()
      ? "Leave this op to MLX: call its own function, or mlx_norms.unpatch() "
        "and unset MLX_NORMS_PATCH where a patch has put it there. Please "
        "report this with the output of `python -m mlx_norms selftest`."
      : "Unset MLX_NORMS_SELF_CHECK: then each kernel is tried before it is in "
        "a graph.";
  throw KernelError(text, error.lasting);
}

// Encodes the op's plan, or one that was recorded. A plan that cannot be is
// remembered as null, so that this is found out once. False: its kernels do not
// pass their check.
bool run_as_given(
    const OpPtr& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  static thread_local CallTable<std::unique_ptr<RecordedLaunch>> calls;
  CallKey key(inputs, outputs, stream);
  auto* known = calls.find(*op, key);
  if (known && *known) {
    ++launches_encoded_again();
    encode(**known, inputs, outputs, stream);
    return true;
  }
  if (known) {
    encode(op->plan(inputs, outputs, stream));
    return true;
  }
  bool records = calls.is_made_again(key);
  Arrays names_of_their_own;
  if (records) {
    names_of_their_own = with_names_of_their_own(inputs);
  }
  const auto& named = records ? names_of_their_own : inputs;
  auto plan = op->plan(named, outputs, stream);
  if (op->has_sample() && !is_checked(plan) &&
      !(passes_self_check(*op, inputs, stream, Checked::AsGiven) &&
        is_checked(plan))) {
    return false;
  }
  auto recorded = records ? RecordedLaunch::of(plan, named, outputs) : nullptr;
  encode(std::move(plan));
  if (records) {
    calls.add(op, key, std::move(recorded));
  }
  return true;
}

void run_on_copies(
    const Op& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  auto plain = plain_inputs(op, inputs, stream);
  align_outputs(outputs, stream);
  auto plan = op.plan(plain, outputs, stream);
  if (op.has_sample() && !is_checked(plan) &&
      !passes_self_check(op, inputs, stream, Checked::Dense)) {
    throw KernelError(
        std::string("[mlx_norms] The Metal kernel of ") + op.name() +
        " failed its check.");
  }
  encode(std::move(plan));
}

} // namespace

bool passes_self_check(
    const OpPtr& op,
    const Arrays& inputs,
    mx::Stream stream) {
  static thread_local CallTable<bool> passed; // a verdict takes a lock
  CallKey call(inputs, stream);
  if (passed.find(*op, call)) {
    return true;
  }
  bool passes = !op->has_sample() ||
      passes_self_check(*op, inputs, stream, Checked::Dense);
  if (passes) {
    passed.add(op, call, true);
  }
  return passes;
}

void run(
    const OpPtr& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream) {
  std::optional<UnbuiltKernel> refused;
  try {
    try {
      if (!self_check::copies_operands() &&
          run_as_given(op, inputs, outputs, stream)) {
        return;
      }
    } catch (const UnbuiltKernel& error) {
      refused = error;
    }
    run_on_copies(*op, inputs, outputs, stream);
  } catch (const KernelError& error) {
    throw_to_user(error);
  }
  if (refused) {
    warn_of_layout(*refused);
  }
}

} // namespace mlx_norms
