// Copyright © 2026 mlx_norms contributors
//
// To be preloaded: counts what the extension itself allocates on the heap, and
// the locks that it takes. The callers are told by their return addresses.

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

uintptr_t begin, end;  // of the extension's code
long all, ours, locks; // of one thread: the tests have no other

int find(dl_phdr_info* info, size_t, void*) {
  if (!std::strstr(info->dlpi_name, "/_ext.")) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    auto& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && (part.p_flags & PF_X)) {
      begin = info->dlpi_addr + part.p_vaddr;
      end = begin + part.p_memsz;
    }
  }
  return 1;
}

bool is_ours(void* caller) {
  auto at = reinterpret_cast<uintptr_t>(caller);
  return begin <= at && at < end;
}

} // namespace

extern "C" {

// Returns whether the extension is loaded.
int find_extension() {
  return dl_iterate_phdr(find, nullptr);
}

void counts(long* to) {
  to[0] = all;
  to[1] = ours;
  to[2] = locks;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static auto lock =
      reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  locks += is_ours(__builtin_return_address(0));
  return lock(mutex);
}

} // extern "C"

void* operator new(size_t size) {
  ++all;
  ours += is_ours(__builtin_return_address(0));
  if (void* memory = std::malloc(size ? size : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
