#include "tools/bench/allocations.h"

#include <errno.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace bindery::bench {
namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> ours{0}, libraries{0};

// Code of the libraries whose allocations are theirs: who calls malloc from it was not called for memory by us. What
// libstdc++, fmt and protobuf allocate is ours: it is our strings and vectors that grow there.
struct CodeRange {
  uintptr_t begin = 0, end = 0;
};
std::array<CodeRange, 32> theirs;
size_t their_count = 0;

int FindTheirs(dl_phdr_info* info, size_t, void*) {
  const std::string_view path = info->dlpi_name;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  const auto is = [&](std::string_view name) { return file.substr(0, name.size()) == name; };
  if (!is("libdnnl.") && !is("libgomp.") && !is("libc.") && !is("ld-linux") && !is("libpthread.")) return 0;
  for (int i = 0; i < info->dlpi_phnum && their_count < theirs.size(); ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    theirs[their_count++] = {begin, begin + segment.p_memsz};
  }
  return 0;
}

void Count(const void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const auto at = reinterpret_cast<uintptr_t>(caller);
  for (size_t i = 0; i < their_count; ++i) {
    if (at < theirs[i].begin || at >= theirs[i].end) continue;
    libraries.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ours.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Allocations CountAllocations() { return {ours.load(), libraries.load()}; }

void SetCounting(bool on) {
  if (on && their_count == 0) dl_iterate_phdr(&FindTheirs, nullptr);
  counting.store(on);
}

namespace {
void* New(size_t size, const void* caller) {
  Count(caller);
  if (void* memory = __libc_malloc(size)) return memory;
  throw std::bad_alloc();
}
void* NewAligned(size_t size, std::align_val_t alignment, const void* caller) {
  Count(caller);
  if (void* memory = __libc_memalign(static_cast<size_t>(alignment), size)) return memory;
  throw std::bad_alloc();
}
// Not inline: g++ would take `new` of one and `free` of the other for a mistake.
[[gnu::noinline]] void Free(void* memory) noexcept { std::free(memory); }
}  // namespace

}  // namespace bindery::bench

using namespace bindery::bench;

extern "C" {
void* malloc(size_t size) {
  Count(__builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count(__builtin_return_address(0));
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  Count(__builtin_return_address(0));
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  Count(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  Count(__builtin_return_address(0));
  *out = __libc_memalign(alignment, size);
  return *out == nullptr && size > 0 ? ENOMEM : 0;
}
}

void* operator new(size_t size) { return New(size, __builtin_return_address(0)); }
void* operator new[](size_t size) { return New(size, __builtin_return_address(0)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return NewAligned(size, alignment, __builtin_return_address(0));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return NewAligned(size, alignment, __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
