// What the elementwise functions (functions.h) are made of: a name, flags, and lists of them.
#pragma once

#include <cstddef>
#include <string_view>

namespace bindery {

template <size_t kSize>
struct FixedString {
  char text[kSize];
  consteval FixedString(const char (&from)[kSize]) {
    for (size_t i = 0; i < kSize; ++i) text[i] = from[i];
  }
};

enum FunctionFlags : unsigned {
  kAnyType = 0,
  kFloatsOnly = 1,     // made for floating point types alone
  kZeroKept = 2,       // f(0) = +0: padding stays what it is
  kWraps = 4,          // integers overflow as in two's complement
  kTruth = 8,          // the result is bool
  kIntegersOnly = 16,  // made for integers alone, not for bool
  kSaturates = 32,     // integers that overflow become the nearest that there is
};

template <FixedString kText, unsigned kTraits = kAnyType>
struct Function {
  static constexpr const char* kName = kText.text;
  static constexpr unsigned kFlags = kTraits;
};

template <class... F>
struct FunctionList {
  static constexpr size_t kSize = sizeof...(F);
  // Position in the list, which is the same for every type that the functions are compiled for; kSize if it is not
  // there.
  static constexpr size_t Find(std::string_view name) {
    size_t i = 0;
    static_cast<void>(((name == F::kName ? false : (++i, true)) && ...));
    return i;
  }
};

}  // namespace bindery
