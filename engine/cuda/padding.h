// Arguments of kernels are compared as bytes, with those that were captured: what lies between members must not differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <new>

namespace bindery::cuda {

// Zeros what is no part of any member. All members of T have initial values.
template <class T>
void ClearPadding(T* value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(value);
#else  // a clang: what a constructor leaves as it was, whatever that is
  static const std::array<bool, sizeof(T)> kIsPadding = [] {
    std::array<bool, sizeof(T)> is_padding = {};
    alignas(T) unsigned char on_zeros[sizeof(T)], on_ones[sizeof(T)];
    std::memset(on_zeros, 0, sizeof(T));
    std::memset(on_ones, 0xff, sizeof(T));
    asm volatile("" : : "r"(on_zeros), "r"(on_ones) : "memory");  // both are written before
    new (on_zeros) T;
    new (on_ones) T;
    asm volatile("" : : "r"(on_zeros), "r"(on_ones) : "memory");
    for (size_t i = 0; i < sizeof(T); ++i) is_padding[i] = on_zeros[i] != on_ones[i];
    return is_padding;
  }();
  for (size_t i = 0; i < sizeof(T); ++i) {
    if (kIsPadding[i]) reinterpret_cast<unsigned char*>(value)[i] = 0;
  }
#endif
}

}  // namespace bindery::cuda
