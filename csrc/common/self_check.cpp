// Copyright © 2026 mlx_norms contributors

#include "csrc/common/self_check.h"

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "csrc/common/checks.h"
#include "csrc/common/interpreter.h"
#include "csrc/common/kernel_error.h"

namespace mlx_norms::self_check {

namespace {

// Why a specialization is not used; empty if it is.
using Verdict = std::string;

using Kernels = std::vector<const void*>;

// A stream of the thread that runs checks.
thread_local std::optional<mx::Stream> own_stream;
thread_local Kernels launched;
thread_local bool copying = false;

// How far results may be from those of MLX's ops, relative to 1 + |value|:
// MLX's ops round more often, and do not add pairwise.
float tolerance(mx::Dtype dtype) {
  return dtype == mx::float32 ? 1e-3f : dtype == mx::float16 ? 1e-2f : 5e-2f;
}

Verdict compare(const Arrays& ours, const Arrays& theirs, mx::Stream stream) {
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].size() == 0) {
      continue;
    }
    auto a = mx::astype(ours[i], mx::float32, stream);
    auto b = mx::astype(theirs[i], mx::float32, stream);
    auto error = mx::divide(
        mx::abs(mx::subtract(a, b, stream), stream),
        mx::add(mx::abs(b, stream), array(1.0f), stream),
        stream);
    float max_error = mx::max(error, stream).item<float>();
    float allowed = tolerance(ours[i].dtype());
    if (!(max_error <= allowed)) {
      return "output " + std::to_string(i) + " is off by " + text(max_error) +
          " where " + text(allowed) + " is allowed";
    }
  }
  return {};
}

// A verdict, or the reason for having none: an error that is not the kernel's.
struct Outcome {
  std::optional<Verdict> verdict;
  std::string reason;
  Kernels kernels; // that it launched
};

// MLX has no type for such an error. Lack of memory is not the kernel's fault,
// nor is that of another kernel that ran at the same time.
bool is_fault(const std::string& text) {
  auto says = [&](const char* part) {
    return text.find(part) != std::string::npos;
  };
  return text.starts_with("[METAL] Command buffer execution failed") &&
      !says("nsufficient Memory") && !says("OutOfMemory") &&
      !says("InnocentVictim");
}

Verdict try_out(const Sample& sample, mx::Stream stream, const Arrays& theirs) {
  auto inputs = sample.inputs(stream);
  auto verdict = compare(sample.ours(inputs, stream), theirs, stream);
  if (!verdict.empty() || !sample.donates) {
    return verdict;
  }
  // Again with inputs that nobody else holds, whose buffers are donated.
  inputs.clear();
  auto donated = sample.ours(sample.inputs(stream), stream);
  verdict = compare(donated, theirs, stream);
  return verdict.empty() ? verdict : verdict + " (in the inputs' buffers)";
}

// A thread that runs one task after another. Never destroyed.
class Worker {
 public:
  Worker() {
    std::thread([this] { run_tasks(); }).detach();
  }

  // Waits until it has been run.
  void run(const std::function<void()>& task) {
    std::lock_guard one(callers_);
    std::unique_lock lock(mutex_);
    task_ = &task;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !task_; });
  }

 private:
  void run_tasks() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return task_; });
      (*task_)();
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex callers_, mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr; // null: none, or it is done
};

// Runs f, which must not throw, on its own thread and stream, and waits without
// the interpreter's lock. Errors of the caller's stream and of f do not reach
// each other, and a transformation that the caller is in does not keep f's
// graph alive. One f runs at a time; f may call this function.
void on_check_stream(
    mx::Device device,
    const std::function<void(mx::Stream)>& f) {
  if (own_stream) {
    f(*own_stream);
    return;
  }
  // Never destroyed: the interpreter may be gone by then.
  static auto* thread = new Worker();
  without_interpreter([&] {
    thread->run([&] {
      static const auto stream = mx::new_stream(device);
      own_stream = stream;
      f(stream);
      own_stream.reset();
    });
  });
}

Outcome judge(mx::Device device, const Sample& sample) {
  Outcome outcome;
  on_check_stream(device, [&](mx::Stream stream) {
    bool is_ours = false;
    auto of_outer = std::exchange(launched, {});
    bool outer_copies = std::exchange(copying, sample.copies);
    try {
      auto inputs = sample.inputs(stream);
      auto theirs = sample.theirs(inputs, stream);
      mx::eval(theirs);
      inputs.clear();
      is_ours = true;
      outcome.verdict = try_out(sample, stream, theirs);
    } catch (const std::exception& e) {
      outcome.reason = e.what();
      auto* of_kernel = dynamic_cast<const KernelError*>(&e);
      bool is_bad =
          of_kernel ? of_kernel->lasting : is_ours && is_fault(outcome.reason);
      if (is_bad) {
        outcome.verdict = outcome.reason;
      }
      try {
        mx::synchronize(stream); // this clears the stream's error
      } catch (const std::exception&) {
      }
    }
    outcome.kernels = std::exchange(launched, std::move(of_outer));
    copying = outer_copies;
  });
  return outcome;
}

std::mutex mutex;
auto& verdicts = *new std::map<Key, Verdict>();
auto& uses = *new std::map<Key, unsigned>();  // of keys without a verdict
auto& checked = *new std::set<const void*>(); // kernels
auto& warned = *new std::set<Verdict>();      // each reason is reported once

// Counts a use of a key without a verdict, and says whether it is checked.
bool is_due(const Key& key) {
  std::lock_guard lock(mutex);
  return is_tried_again(++uses[key]);
}

// What to warn of: a bad verdict, or having none, if that is new.
Verdict keep(const Key& key, const Outcome& outcome) {
  std::lock_guard lock(mutex);
  Verdict said;
  if (outcome.verdict) {
    verdicts.emplace(key, *outcome.verdict);
    said = *outcome.verdict;
    if (said.empty()) {
      checked.insert(outcome.kernels.begin(), outcome.kernels.end());
    }
  } else if (uses[key] >= kMaxTries) {
    said = "no verdict in " + std::to_string(kMaxTries) +
        " checks, and later uses will try again; the last ended with: " +
        outcome.reason;
  }
  return !said.empty() && warned.insert(said).second ? said : Verdict();
}

} // namespace

bool enabled() {
  static const bool on = [] {
    auto* value = std::getenv("MLX_NORMS_SELF_CHECK");
    return !value || std::string(value) != "0";
  }();
  return on;
}

// Values of about 1, the same at every call; some are near float16's largest.
// Every other row has a mean of about 0, for which LayerNorm needs fewer steps.
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

std::string described(const char* op, const Arrays& inputs, mx::Dtype output) {
  std::string dtypes;
  for (const auto& a : inputs) {
    dtypes += text(a.dtype()) + ", ";
  }
  int length = inputs[0].ndim() == 0 ? 1 : inputs[0].shape(-1);
  return std::string("of ") + op + " (" + dtypes + "to " + text(output) +
      ", rows of " + std::to_string(length) + ")";
}

std::optional<bool> known(const Key& key) {
  std::lock_guard lock(mutex);
  auto it = verdicts.find(key);
  return it == verdicts.end() ? std::nullopt
                              : std::optional(it->second.empty());
}

bool passes(
    const Key& key,
    mx::Device device,
    const Sample& sample,
    const std::string& kernel,
    const char* instead) {
  if (!is_due(key)) {
    return false;
  }
  // Outside the lock: two threads may both check, which does no harm.
  auto outcome = judge(device, sample);
  auto bad = keep(key, outcome);
  if (!bad.empty()) {
    warn(
        "[mlx_norms] The Metal kernel " + kernel +
        " failed its check and is not used; " + instead +
        ". Please report this with the output of `python -m mlx_norms "
        "selftest`: " +
        bad);
  }
  return outcome.verdict && outcome.verdict->empty();
}

bool is_running() {
  return own_stream.has_value();
}

bool copies_operands() {
  return copying;
}

void note_launch(const void* kernel) {
  if (is_running()) {
    launched.push_back(kernel);
  }
}

bool has_launched(const void* kernel) {
  std::lock_guard lock(mutex);
  return checked.contains(kernel);
}

} // namespace mlx_norms::self_check
