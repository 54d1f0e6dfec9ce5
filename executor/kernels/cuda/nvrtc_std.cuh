// For NVRTC, which has no standard library, in place of its headers and of base/dtype.h: what fused_body.h uses of
// them.
#pragma once

#define INFINITY __builtin_huge_valf()
#define INT32_MAX 0x7fffffff

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;

namespace std {

using ::size_t, ::int64_t, ::uint64_t;

template <class T, T kValue>
struct integral_constant {
  static constexpr T value = kValue;
};
template <bool kYes, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kYes, class A, class B>
using conditional_t = typename conditional<kYes, A, B>::type;

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v = requires(T x) {
  x % x;
};
template <class T>
inline constexpr bool is_unsigned_v = static_cast<T>(-1) > static_cast<T>(0);
template <class T>
inline constexpr bool is_signed_v = !is_unsigned_v<T>;

// Named by what is compiled for integers, of which there are none here.
template <class T>
using make_unsigned_t = T;
template <class A, class>
using common_type_t = A;
template <class T>
struct numeric_limits;
template <class A, class B>
constexpr bool cmp_less(A a, B b) {
  return a < b;
}
template <class A, class B>
constexpr bool cmp_greater_equal(A a, B b) {
  return a >= b;
}
template <class T>
constexpr T clamp(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

template <class To, class From>
constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

class string_view {
 public:
  constexpr string_view(const char* text) : text_(text) {}
  friend constexpr bool operator==(string_view a, string_view b) {
    const char *x = a.text_, *y = b.text_;
    for (; *x && *x == *y; ++x) ++y;
    return *x == *y;
  }

 private:
  const char* text_;
};

using ::acos, ::acosh, ::asin, ::asinh, ::atan, ::atanh, ::ceil, ::cos, ::cosh, ::erf, ::erfc, ::exp, ::expm1, ::fabs,
    ::floor, ::fmod, ::log, ::log1p, ::pow, ::rint, ::sin, ::sinh, ::sqrt, ::tan, ::tanh, ::trunc;

}  // namespace std

namespace bindery {

struct bfloat16 {
  uint16_t bits;
};
struct float16 {
  uint16_t bits;
};

}  // namespace bindery
