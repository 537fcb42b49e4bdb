// Copyright © 2026 mlx_norms contributors
#include "fiber.h"

#include <cstdint>
#include <cstring>

namespace metalsim {

#if defined(__x86_64__)

// Saves what a call has to keep: rbp, rbx and r12 to r15.
asm(R"(
.text
.globl metalsim_switch
.hidden metalsim_switch
.type metalsim_switch,@function
metalsim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size metalsim_switch, .-metalsim_switch
)");

void* new_stack_pointer(char* top, void (*entry)()) {
  auto* p = reinterpret_cast<void**>(
      reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
  *--p = nullptr; // the entry's return address, which also aligns its frame
  *--p = reinterpret_cast<void*>(entry);
  p -= 6;
  std::memset(p, 0, 6 * sizeof(void*));
  return p;
}

#elif defined(__aarch64__)

// Saves what a call has to keep: x19 to x30 and d8 to d15.
asm(R"(
.text
.globl metalsim_switch
.hidden metalsim_switch
.type metalsim_switch,%function
metalsim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size metalsim_switch, .-metalsim_switch
)");

void* new_stack_pointer(char* top, void (*entry)()) {
  auto* p = reinterpret_cast<void**>(
      reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
  p -= 20;
  std::memset(p, 0, 20 * sizeof(void*));
  p[11] = reinterpret_cast<void*>(entry);
  return p;
}

#else
#error "metalsim has no fiber switch for this processor"
#endif

} // namespace metalsim
