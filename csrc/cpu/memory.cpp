// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/memory.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "csrc/common/outputs.h"
#include "mlx/allocator.h"

namespace mlx_norms::cpu {

namespace {

// Asks for huge pages for fresh memory: the system clears it one page fault at
// a time, which takes longer than a norm if pages are small. This is only
// advice; other systems do not need it or have no such call.
void prefer_huge_pages(
    [[maybe_unused]] void* data,
    [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
  constexpr uintptr_t kPage = 2 << 20;
  auto address = reinterpret_cast<uintptr_t>(data);
  auto begin = (address + kPage - 1) / kPage * kPage;
  auto end = (address + bytes) / kPage * kPage;
  if (begin < end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
#endif
}

} // namespace

void allocate(array& out, std::initializer_list<const array*> from) {
  if (!take_buffer(out, from)) {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    prefer_huge_pages(out.data<char>(), out.nbytes());
  }
}

} // namespace mlx_norms::cpu
