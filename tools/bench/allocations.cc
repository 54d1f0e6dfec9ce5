#include "tools/bench/allocations.h"

#include <dlfcn.h>
#include <errno.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
extern char __executable_start, etext;
}

namespace bindery::bench {
namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> ours{0}, libraries{0};

void Count(const void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const char* at = static_cast<const char*>(caller);
  (at >= &__executable_start && at < &etext ? ours : libraries).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Allocations CountAllocations() { return {ours.load(), libraries.load()}; }
void SetCounting(bool on) { counting.store(on); }

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
void* operator new(size_t size, std::align_val_t alignment) { return NewAligned(size, alignment, __builtin_return_address(0)); }
void* operator new[](size_t size, std::align_val_t alignment) { return NewAligned(size, alignment, __builtin_return_address(0)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
