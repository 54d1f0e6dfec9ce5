#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "base/host_tensor.h"

namespace bindery {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What a 16-bit pattern means, from the definition of the formats and nothing else.
double Decode(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int sign = bits >> 15 ? -1 : 1;
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * kInfinity : kNaN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}
double Decode(float16 value) { return Decode(value.bits, 5, 10); }
double Decode(bfloat16 value) { return Decode(value.bits, 8, 7); }

template <class T>
T FromBits(int bits) {
  T value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

template <class T>
class SixteenBitTest : public testing::Test {};
using SixteenBitTypes = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(SixteenBitTest, SixteenBitTypes);

TYPED_TEST(SixteenBitTest, EveryPatternLoadsExactlyAndComesBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const TypeParam value = FromBits<TypeParam>(bits);
    const double expected = Decode(value);
    const float loaded = static_cast<float>(value);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(loaded)) << bits;
      ASSERT_TRUE(std::isnan(Decode(TypeParam(loaded)))) << bits;
      ASSERT_EQ(TypeParam(loaded).bits >> 15, bits >> 15) << "sign of NaN " << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(loaded), expected) << bits;
    ASSERT_EQ(std::signbit(loaded), bits >> 15 != 0) << bits;
    ASSERT_EQ(TypeParam(loaded).bits, bits);
    ASSERT_EQ(StoreDouble<TypeParam>(expected).bits, bits);
    ASSERT_EQ(LoadDouble(value), expected);
  }
}

// Between two neighbours, all floats below the middle belong to the lower, all above it to the upper, the middle itself
// to the even one. After the largest finite value comes what would be the next one: from its middle on it is infinity.
TYPED_TEST(SixteenBitTest, RoundsToNearestEvenBetweenAllNeighbours) {
  for (int sign = 0; sign < 2; ++sign) {
    for (int bits = 0; std::isfinite(Decode(FromBits<TypeParam>(bits))); ++bits) {
      const double low = Decode(FromBits<TypeParam>(bits));
      double high = Decode(FromBits<TypeParam>(bits + 1));
      if (std::isinf(high)) high = low + (low - Decode(FromBits<TypeParam>(bits - 1)));
      const double middle = (low + high) / 2;
      const int even = bits % 2 == 0 ? bits : bits + 1;
      const double factor = sign ? -1 : 1;
      const int sign_bit = sign << 15;
      ASSERT_EQ(StoreDouble<TypeParam>(factor * middle).bits, even | sign_bit) << bits;
      ASSERT_EQ(StoreDouble<TypeParam>(factor * std::nextafter(middle, 0)).bits, bits | sign_bit) << bits;
      ASSERT_EQ(StoreDouble<TypeParam>(factor * std::nextafter(middle, kInfinity)).bits, (bits + 1) | sign_bit) << bits;
      const float middle_float = static_cast<float>(middle);
      if (static_cast<double>(middle_float) != middle) continue;  // below bfloat16's smallest subnormal
      const float factor_float = sign ? -1 : 1;
      ASSERT_EQ(TypeParam(factor_float * middle_float).bits, even | sign_bit) << bits;
      ASSERT_EQ(TypeParam(factor_float * std::nextafter(middle_float, 0.0f)).bits, bits | sign_bit) << bits;
      ASSERT_EQ(TypeParam(factor_float * std::nextafter(middle_float, HUGE_VALF)).bits, (bits + 1) | sign_bit) << bits;
    }
  }
}

TYPED_TEST(SixteenBitTest, Extremes) {
  EXPECT_EQ(Decode(TypeParam(std::numeric_limits<float>::infinity())), kInfinity);
  EXPECT_EQ(Decode(TypeParam(-std::numeric_limits<float>::infinity())), -kInfinity);
  EXPECT_EQ(Decode(StoreDouble<TypeParam>(1e300)), kInfinity);
  EXPECT_EQ(Decode(StoreDouble<TypeParam>(-1e300)), -kInfinity);
  EXPECT_EQ(StoreDouble<TypeParam>(1e-300).bits, 0);
  EXPECT_EQ(StoreDouble<TypeParam>(-1e-300).bits, 0x8000);
  EXPECT_TRUE(std::isnan(Decode(StoreDouble<TypeParam>(kNaN))));
  // A NaN whose payload lies only in the bits that are cut off must not become infinity.
  EXPECT_TRUE(std::isnan(Decode(TypeParam(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(TypeParam().bits, 0);
}

TEST(DTypeTest, DoubleRoundsOnceNotTwice) {
  // Just above the middle of 1 and the next bfloat16: a float in between would round it to the middle, then to even.
  const double value = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(static_cast<float>(StoreDouble<bfloat16>(value)), 1.0f + 0x1p-7f);
  EXPECT_EQ(static_cast<float>(StoreDouble<float16>(1.0 + 0x1p-11 + 0x1p-40)), 1.0f + 0x1p-10f);
}

TEST(DTypeTest, IntegersRoundToEvenAndSaturate) {
  EXPECT_EQ(StoreDouble<int32_t>(2.5), 2);
  EXPECT_EQ(StoreDouble<int32_t>(3.5), 4);
  EXPECT_EQ(StoreDouble<int32_t>(-2.5), -2);
  EXPECT_EQ(StoreDouble<int8_t>(127.5), 127);
  EXPECT_EQ(StoreDouble<int8_t>(-128.5), -128);
  EXPECT_EQ(StoreDouble<int8_t>(-129), -128);
  EXPECT_EQ(StoreDouble<int8_t>(1e30), 127);
  EXPECT_EQ(StoreDouble<uint8_t>(-0.4), 0);
  EXPECT_EQ(StoreDouble<uint8_t>(-7), 0);
  EXPECT_EQ(StoreDouble<uint8_t>(255.4), 255);
  EXPECT_EQ(StoreDouble<uint8_t>(256), 255);
  EXPECT_EQ(StoreDouble<int32_t>(2147483647.0), 2147483647);
  EXPECT_EQ(StoreDouble<int32_t>(2147483648.0), 2147483647);
  EXPECT_EQ(StoreDouble<int64_t>(0x1p63), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(StoreDouble<int64_t>(0x1p63 - 1024), (int64_t{1} << 62) - 1024 + (int64_t{1} << 62));
  EXPECT_EQ(StoreDouble<int64_t>(-0x1p63), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(StoreDouble<int64_t>(-kInfinity), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(StoreDouble<int64_t>(kInfinity), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(StoreDouble<int16_t>(-32768.5), -32768);
  EXPECT_EQ(StoreDouble<uint16_t>(65536), 65535);
  EXPECT_EQ(StoreDouble<uint32_t>(4294967295.5), 4294967295u);
  EXPECT_EQ(StoreDouble<uint64_t>(0x1p64), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(StoreDouble<uint64_t>(0x1p63), uint64_t{1} << 63);
  EXPECT_EQ(StoreDouble<uint64_t>(-1), 0u);
  EXPECT_EQ(StoreDouble<int32_t>(kNaN), 0);
  EXPECT_EQ(StoreDouble<uint8_t>(kNaN), 0);
}

TEST(DTypeTest, IntegersConvertWithoutLoss) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kOdd = (int64_t{1} << 62) + 1;
  EXPECT_EQ((Convert<int64_t, uint64_t>(kMost)), std::numeric_limits<int64_t>::max());
  EXPECT_EQ((Convert<uint64_t, int64_t>(-1)), 0u);
  EXPECT_EQ((Convert<uint64_t, int64_t>(kOdd)), static_cast<uint64_t>(kOdd));
  EXPECT_EQ((Convert<uint32_t, int8_t>(-5)), 0u);
  EXPECT_EQ((Convert<int16_t, uint16_t>(65535)), 32767);
  EXPECT_EQ((Convert<int8_t, int64_t>(kLeast)), -128);
  EXPECT_EQ((Convert<uint64_t, bool>(true)), 1u);
  EXPECT_EQ((Convert<bool, uint64_t>(kMost)), true);
  EXPECT_EQ((Convert<float, int64_t>((int64_t{1} << 60) + (int64_t{1} << 36) + 1)), 0x1p60f + 0x1p37f);  // rounded once
  EXPECT_EQ((Convert<bfloat16, double>(1.0 + 0x1p-8 + 0x1p-40)).bits,
            StoreDouble<bfloat16>(1.0 + 0x1p-8 + 0x1p-40).bits);
  EXPECT_EQ((Convert<uint16_t, float>(2.5f)), 2);
  HostTensor large(DType::kInt64, {1});
  large.data<int64_t>()[0] = kOdd;
  EXPECT_EQ(large.Cast(DType::kUInt64).data<uint64_t>()[0], static_cast<uint64_t>(kOdd));
}

TEST(DTypeTest, BoolIsNotZero) {
  EXPECT_FALSE(StoreDouble<bool>(0.0));
  EXPECT_FALSE(StoreDouble<bool>(-0.0));
  EXPECT_TRUE(StoreDouble<bool>(0.25));
  EXPECT_TRUE(StoreDouble<bool>(-3));
  EXPECT_TRUE(StoreDouble<bool>(kNaN));
  EXPECT_EQ(LoadDouble(true), 1.0);
}

TEST(DTypeTest, NamesSizesAndTypesAgree) {
  std::set<std::string> names;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(ToString(dtype)), dtype);
    names.insert(ToString(dtype));
    Dispatch(dtype, [&]<class T>() {
      EXPECT_EQ(kDTypeOf<T>, dtype);
      EXPECT_EQ(SizeOf(dtype), static_cast<int64_t>(sizeof(T)));
    });
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumDTypes));
  EXPECT_TRUE(IsFloat(DType::kFloat16));
  EXPECT_TRUE(IsFloat(DType::kBFloat16));
  EXPECT_TRUE(IsFloat(DType::kFloat32));
  EXPECT_TRUE(IsFloat(DType::kFloat64));
  EXPECT_FALSE(IsFloat(DType::kInt8));
  EXPECT_FALSE(IsFloat(DType::kBool));
}

TEST(DTypeTest, NumbersOfTheFileFormat) {
  EXPECT_EQ(static_cast<int>(DType::kFloat32), 0);
  EXPECT_EQ(static_cast<int>(DType::kFloat64), 1);
  EXPECT_EQ(static_cast<int>(DType::kBFloat16), 2);
  EXPECT_EQ(static_cast<int>(DType::kFloat16), 3);
  EXPECT_EQ(static_cast<int>(DType::kInt8), 4);
  EXPECT_EQ(static_cast<int>(DType::kInt32), 5);
  EXPECT_EQ(static_cast<int>(DType::kInt64), 6);
  EXPECT_EQ(static_cast<int>(DType::kUInt8), 7);
  EXPECT_EQ(static_cast<int>(DType::kBool), 8);
  EXPECT_EQ(static_cast<int>(DType::kInt16), 9);
  EXPECT_EQ(static_cast<int>(DType::kUInt16), 10);
  EXPECT_EQ(static_cast<int>(DType::kUInt32), 11);
  EXPECT_EQ(static_cast<int>(DType::kUInt64), 12);
}

TEST(DTypeTest, UnknownNamesAndNumbersAreErrors) {
  for (const char* name : {"", "float", "Float32", "float32 ", "int128"}) {
    try {
      ParseDType(name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("float32, float64"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(SizeOf(static_cast<DType>(kNumDTypes)), Error);
  EXPECT_STREQ(ToString(static_cast<DType>(200)), "invalid dtype");
}

}  // namespace
}  // namespace bindery
