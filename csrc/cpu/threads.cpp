// Copyright © 2026 mlx_norms contributors
//
// The threads are BS::thread_pool's: it is maintained, tested on Linux and
// macOS, a single header, so that the build needs no network, and uses plain
// mutexes and condition variables, which ThreadSanitizer understands. Each call
// is taken by the next free thread, which may be the caller, so that nobody
// waits for a thread that is busy or gone.

#include "csrc/cpu/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/cpu/cores.h"
#include "csrc/vendor/BS_thread_pool.hpp"

namespace mlx_norms::cpu {

namespace {

constexpr int kMaxThreads = 1024;

int choose_count() {
  const char* text = std::getenv("MLX_NORMS_CPU_THREADS");
  if (!text || !*text) {
    return std::max(1u, std::thread::hardware_concurrency());
  }
  int count = 0;
  auto* end = text + std::strlen(text);
  auto [rest, error] = std::from_chars(text, end, count);
  if (error != std::errc() || rest != end || count < 1 || count > kMaxThreads) {
    throw std::invalid_argument(
        "[mlx_norms] MLX_NORMS_CPU_THREADS must be a number from 1 to " +
        std::to_string(kMaxThreads) + " but is " + text + ".");
  }
  return count;
}

// Waking a thread takes as long as a small norm. So an idle thread polls for a
// while before it sleeps, and yields to others.
template <typename F>
void stay_awake(F until) {
  using Clock = std::chrono::steady_clock;
  auto end = Clock::now() + std::chrono::microseconds(100);
  while (!until() && Clock::now() < end) {
    std::this_thread::yield();
  }
}

// The state that the threads of one parallel_for share; a late thread finds no
// calls left.
class Calls {
 public:
  Calls(int n, const std::function<void(int)>& f)
      : f_(f),
        n_(n),
        left_(n),
        core_(this_core()) {}

  // The core of the thread that made the calls.
  int core() const {
    return core_;
  }

  void take() {
    for (int i; (i = next_.fetch_add(1)) < n_;) {
      try {
        f_(i);
      } catch (...) {
        if (!failed_.exchange(true)) {
          error_ = std::current_exception();
        }
      }
      if (left_.fetch_sub(1) == 1) {
        left_.notify_all();
      }
    }
  }

  void wait() {
    stay_awake([this] { return left_.load() == 0; });
    for (int left; (left = left_.load()) > 0;) {
      left_.wait(left);
    }
    // Moved out, so that no other thread is the last to release it.
    if (auto error = std::exchange(error_, nullptr)) {
      std::rethrow_exception(error);
    }
  }

 private:
  const std::function<void(int)>& f_; // gone once all calls are done
  int n_;
  std::atomic<int> next_{0};
  std::atomic<int> left_;
  int core_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

// The helper threads; the pool wakes those that sleep.
class Helpers {
 public:
  explicit Helpers(int count) : pool_(count) {}

  void ask(int count, const std::shared_ptr<Calls>& calls) {
    std::lock_guard lock(mutex_);
    for (; count > 0 && idle_ > 0; --count, --idle_) {
      offers_.push_back(calls);
      n_offers_ = offers_.size();
    }
    for (; count > 0; --count) {
      pool_.detach_task([this, calls]() mutable { help(std::move(calls)); });
    }
  }

 private:
  void help(std::shared_ptr<Calls> calls) {
    while (calls) {
      leave_core(calls->core());
      calls->take();
      calls = next();
    }
  }

  std::shared_ptr<Calls> next() {
    {
      std::lock_guard lock(mutex_);
      if (pool_.get_tasks_queued() > 0) {
        return nullptr;
      }
      ++idle_;
    }
    stay_awake([this] { return n_offers_.load() > 0; });
    std::lock_guard lock(mutex_);
    if (offers_.empty()) {
      --idle_;
      return nullptr;
    }
    auto calls = std::move(offers_.back());
    offers_.pop_back();
    n_offers_ = offers_.size();
    return calls;
  }

  BS::light_thread_pool pool_;
  std::mutex mutex_;
  int idle_ = 0; // threads that are awake without an offer
  std::vector<std::shared_ptr<Calls>> offers_; // one per thread that is awake
  std::atomic<size_t> n_offers_{0};
};

std::atomic<Helpers*> current_helpers{nullptr};

// Never destroyed: MLX's streams may outlive this library's statics. A child of
// fork has none of its parent's threads and starts its own.
Helpers& helpers() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { current_helpers.store(nullptr); });
  (void)registered;
  auto* found = current_helpers.load();
  if (!found) {
    auto made = std::make_unique<Helpers>(thread_count() - 1);
    if (current_helpers.compare_exchange_strong(found, made.get())) {
      found = made.release();
    }
  }
  return *found;
}

} // namespace

int thread_count() {
  static const int count = choose_count();
  return count;
}

void parallel_for(int n, const std::function<void(int)>& f) {
  int wanted = std::min(thread_count(), n) - 1;
  if (wanted < 1) {
    for (int i = 0; i < n; ++i) {
      f(i);
    }
    return;
  }
  auto calls = std::make_shared<Calls>(n, f);
  try {
    helpers().ask(wanted, calls);
  } catch (const std::exception&) {
    // With fewer helpers or none it only takes longer.
  }
  std::this_thread::yield(); // to a helper on this core, so that it leaves
  calls->take();
  calls->wait();
}

} // namespace mlx_norms::cpu
