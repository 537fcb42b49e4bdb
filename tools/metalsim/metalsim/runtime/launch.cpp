// Copyright © 2026 mlx_norms contributors
// A launch from end to end, and the signals that end it early.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>

#include <pthread.h>
#include <ucontext.h>

#include "runtime.h"

namespace metalsim {

State state;

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int kSignalCount = sizeof kSignals / sizeof *kSignals;

constexpr uint32_t kEpochLimit = 1u << 31; // no launch passes as many barriers

sigjmp_buf escape;
pthread_t running_thread;
volatile sig_atomic_t running;
struct sigaction before[kSignalCount];

[[noreturn]] void stop() {
  siglongjmp(escape, 1);
}

const void* program_counter(void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<void*>(registers.gregs[REG_RIP] + 1);
#else
  return reinterpret_cast<void*>(registers.pc + 1);
#endif
}

void report_signal(int signal, const char* address, const void* pc) {
  char message[200];
  if (signal == SIGFPE) {
    report("division by zero", "", pc, "an integer is divided by zero");
    return;
  }
  if (signal == SIGILL) { // the trap of clang's -fsanitize=local-bounds
    report("out-of-bounds private", "", pc, "access outside of a variable");
    return;
  }
  if (on_a_stack_guard(address)) {
    report(
        "access violation",
        "",
        pc,
        "a thread's private memory overflows its stack");
    return;
  }
  size_t at = address - state.heap;
  if (at >= state.heap_bytes) {
    std::snprintf(
        message, sizeof message, "access to address %p", (const void*)address);
    report("access violation", "", pc, message);
    return;
  }
  Nearest near = nearest_binding(address);
  if (!near.bound) {
    std::snprintf(
        message,
        sizeof message,
        "buffer '%s' is used, but function constants leave it out",
        near.name);
    report("access violation", near.name, pc, message);
    return;
  }
  if (state.check) {
    return; // the check before the access has reported it
  }
  std::snprintf(
      message,
      sizeof message,
      "access to byte %ld of '%s', which has %lu bytes",
      near.offset,
      near.name,
      near.bytes);
  report("out-of-bounds device", near.name, pc, message);
}

void on_signal(int signal, siginfo_t* info, void* context) {
  if (!running || !pthread_equal(pthread_self(), running_thread)) {
    // Not ours: the instruction raises it again for whoever was there before.
    for (int i = 0; i < kSignalCount; i++) {
      sigaction(kSignals[i], &before[i], nullptr);
    }
    return;
  }
  report_signal(
      signal, static_cast<char*>(info->si_addr), program_counter(context));
  siglongjmp(escape, 1);
}

struct SignalGuard {
  stack_t stack_before;
  SignalGuard() {
    static char alternate[64 * 1024];
    stack_t stack = {};
    stack.ss_sp = alternate;
    stack.ss_size = sizeof alternate;
    sigaltstack(&stack, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < kSignalCount; i++) {
      sigaction(kSignals[i], &action, &before[i]);
    }
    running_thread = pthread_self();
    running = 1;
  }
  ~SignalGuard() {
    running = 0;
    for (int i = 0; i < kSignalCount; i++) {
      sigaction(kSignals[i], &before[i], nullptr);
    }
    sigaltstack(&stack_before, nullptr);
  }
};

void begin(Launch& launch) {
  if (!state.heap) {
    reserve_memory();
    state.collective = collective;
    state.simdgroup_barrier = simdgroup_barrier;
    state.threadgroup_barrier = threadgroup_barrier;
    state.inactive_lane = inactive_lane;
    state.threadgroup_variable = threadgroup_variable;
    state.new_cells = new_cells;
    state.fault = report;
    state.fault_at = report_at;
    state.stop = stop;
  }
  state.launch = &launch;
  state.check = launch.check;
  state.current = nullptr;
  state.group_position = {};
  if (state.threadgroup_clock.now > kEpochLimit ||
      state.device_clock.now > kEpochLimit) {
    forget_cells();
    state.threadgroup_clock.now = state.device_clock.now = 0;
  }
  state.threadgroup_clock.launch = ++state.threadgroup_clock.now;
  state.device_clock.launch = ++state.device_clock.now;
  begin_schedule();
  place_buffers(launch);
  begin_threadgroup_memory();
}

// Threadgroup i of n: as they come, backwards, or by strides.
uint64_t scheduled(uint64_t i, uint64_t n, uint32_t order) {
  if (order == 0) {
    return i;
  }
  if (order == 1) {
    return n - 1 - i;
  }
  uint64_t stride = 1 + order * 0x9e3779b1u % n;
  while (std::gcd(stride, n) != 1) {
    stride++;
  }
  return uint64_t((static_cast<unsigned __int128>(i) * stride + order) % n);
}

void run_threadgroups(Launch& launch) {
  uint32_t count[3];
  for (int i = 0; i < 3; i++) {
    count[i] = (launch.grid[i] + launch.group[i] - 1) / launch.group[i];
  }
  state.group_count = {count[0], count[1], count[2]};
  state.grid_size = {launch.grid[0], launch.grid[1], launch.grid[2]};
  state.nominal_size = {launch.group[0], launch.group[1], launch.group[2]};
  uint64_t n = uint64_t(count[0]) * count[1] * count[2];
  for (uint64_t i = 0; i < n; i++) {
    uint64_t t = scheduled(i, n, launch.order);
    clear_threadgroup_memory();
    run_threadgroup(
        {uint32_t(t % count[0]),
         uint32_t(t / count[0] % count[1]),
         uint32_t(t / count[0] / count[1])},
        t);
    launch.threadgroups++;
    launch.threads +=
        uint64_t(state.group_size.x) * state.group_size.y * state.group_size.z;
  }
}

} // namespace

} // namespace metalsim

extern "C" {

metalsim::State* metalsim_state() {
  return &metalsim::state;
}

// Sizes of the records that the caller mirrors.
size_t metalsim_launch_bytes() {
  return sizeof(metalsim::Launch);
}

size_t metalsim_buffer_bytes() {
  return sizeof(metalsim::Buffer);
}

void metalsim_run(metalsim::Launch* launch) {
  using namespace metalsim;
  SignalGuard guard;
  if (!sigsetjmp(escape, 1)) {
    begin(*launch);
    run_threadgroups(*launch);
    state.current = nullptr;
    if (launch->check > 1) {
      report_unwritten(*launch);
    }
  }
  state.current = nullptr;
  return_buffers(*launch);
}
}
