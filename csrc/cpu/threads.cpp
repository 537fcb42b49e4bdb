// Copyright © 2026 mlx_norms contributors
//
// Each call is taken by the next free thread, which may be the caller, so that
// nobody waits for a thread that is busy or gone. Threads wait for a plain
// mutex and condition variable, which ThreadSanitizer understands.

#include "csrc/cpu/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "csrc/cpu/cores.h"

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

// The threads that help with calls. Never destroyed once they have started.
class Helpers {
 public:
  // Where the system has no more threads, fewer help.
  void start(int count) {
    try {
      for (; count > 0; --count) {
        std::thread([this] { run(); }).detach();
      }
    } catch (const std::system_error&) {
    }
  }

  // Offers the calls to so many.
  void ask(int count, const std::shared_ptr<Calls>& calls) {
    std::lock_guard lock(mutex_);
    offers_.insert(offers_.end(), count, calls);
    n_offers_ = offers_.size();
    int asleep = std::min(count, static_cast<int>(offers_.size()) - awake_);
    for (; asleep > 0; --asleep) {
      offered_.notify_one();
    }
  }

 private:
  void run() {
    while (true) {
      auto calls = next();
      leave_core(calls->core());
      calls->take();
    }
  }

  std::shared_ptr<Calls> next() {
    std::unique_lock lock(mutex_);
    if (offers_.empty()) {
      ++awake_;
      lock.unlock();
      stay_awake([this] { return n_offers_.load() > 0; });
      lock.lock();
      --awake_;
      offered_.wait(lock, [this] { return !offers_.empty(); });
    }
    auto calls = std::move(offers_.front());
    offers_.pop_front();
    n_offers_ = offers_.size();
    return calls;
  }

  std::mutex mutex_;
  std::condition_variable offered_;
  int awake_ = 0; // threads that look for an offer and do not sleep
  std::deque<std::shared_ptr<Calls>> offers_;
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
    auto made = std::make_unique<Helpers>();
    if (current_helpers.compare_exchange_strong(found, made.get())) {
      found = made.release();
      found->start(thread_count() - 1);
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
