// Copyright © 2026 mlx_norms contributors

#pragma once

#include <cstdint>
#include <functional>

namespace mlx_norms::cpu {

// How many threads share large work: one per core, or MLX_NORMS_CPU_THREADS.
// Throws std::invalid_argument if that is not a number from 1 to 1024.
int thread_count();

// Calls f(i) for each i below n, on this thread and all that are free, and
// returns when all calls are done. Rethrows what a call threw.
void parallel_for(int n, const std::function<void(int)>& f);

} // namespace mlx_norms::cpu
