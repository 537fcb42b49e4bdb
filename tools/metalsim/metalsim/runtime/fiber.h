// Copyright © 2026 mlx_norms contributors
// Stacks of GPU threads, and the switch between them.
#pragma once

#include <cstddef>

namespace metalsim {

constexpr size_t kStackBytes = 128 * 1024;

extern "C" void metalsim_switch(void** save, void* load);

// Stack pointer with which a switch enters `entry`, on the stack below `top`.
void* new_stack_pointer(char* top, void (*entry)());

} // namespace metalsim
