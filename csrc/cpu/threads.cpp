// Copyright © 2026 mlx_norms contributors
//
// The threads are those of BS::thread_pool: kept up, tested on Linux and macOS,
// one header, so that the build needs no network, and plain mutexes and
// condition variables, which ThreadSanitizer understands. Calls are taken one
// by one by whoever is free, the caller among them, so that nobody waits for a
// thread that is busy or gone.

#include "csrc/cpu/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "csrc/vendor/BS_thread_pool.hpp"

namespace mlx_norms::cpu {

namespace {

constexpr int kMostThreads = 1024;

int choose_count() {
  const char* text = std::getenv("MLX_NORMS_CPU_THREADS");
  if (!text || !*text) {
    return std::max(1u, std::thread::hardware_concurrency());
  }
  int count = 0;
  auto* end = text + std::strlen(text);
  auto [rest, error] = std::from_chars(text, end, count);
  if (error != std::errc() || rest != end || count < 1 ||
      count > kMostThreads) {
    throw std::invalid_argument(
        "[mlx_norms] MLX_NORMS_CPU_THREADS must be a number from 1 to " +
        std::to_string(kMostThreads) + " but is " + text + ".");
  }
  return count;
}

using Pool = BS::light_thread_pool;

std::atomic<Pool*> current_pool{nullptr};

// Never destroyed: streams of MLX's may outlive this library's statics. A
// child of fork has none of its parent's threads, and makes its own.
Pool& pool() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { current_pool.store(nullptr); });
  (void)registered;
  auto* found = current_pool.load();
  if (!found) {
    auto made = std::make_unique<Pool>(thread_count() - 1);
    if (current_pool.compare_exchange_strong(found, made.get())) {
      found = made.release();
    }
  }
  return *found;
}

// What the threads that work on one parallel_for share; one that comes late
// finds it done.
class Calls {
 public:
  Calls(int n, const std::function<void(int)>& f) : f_(f), n_(n), left_(n) {}

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
    for (int left; (left = left_.load()) > 0;) {
      left_.wait(left);
    }
    // Taken along, so that no other thread is the last to let go of it.
    if (auto error = std::exchange(error_, nullptr)) {
      std::rethrow_exception(error);
    }
  }

 private:
  const std::function<void(int)>& f_; // gone once all calls are done
  int n_;
  std::atomic<int> next_{0};
  std::atomic<int> left_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

} // namespace

int thread_count() {
  static const int count = choose_count();
  return count;
}

void parallel_for(int n, const std::function<void(int)>& f) {
  int helpers = std::min(thread_count(), n) - 1;
  if (helpers < 1) {
    for (int i = 0; i < n; ++i) {
      f(i);
    }
    return;
  }
  auto calls = std::make_shared<Calls>(n, f);
  try {
    for (int i = 0; i < helpers; ++i) {
      pool().detach_task([calls] { calls->take(); });
    }
  } catch (const std::exception&) {
    // Without them, or with fewer, it only takes longer.
  }
  calls->take();
  calls->wait();
}

} // namespace mlx_norms::cpu
