// Each flat kernel against a plain loop in double; all sizes, dtypes, teams and instruction sets.
#include "engine/kernels/flat.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/host_tensor.h"
#include "base/philox.h"
#include "engine/kernels/arithmetic.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"
#include "tests/engine/flat_helpers.h"

namespace bindery {
namespace {

constexpr auto kAllDTypes = [] {
  std::array<DType, kNumDTypes> all{};
  for (int i = 0; i < kNumDTypes; ++i) all[i] = static_cast<DType>(i);
  return all;
}();
const std::vector<int64_t> kSizes = {0, 1, 3, 16, 33, 1023, 1025};

// Relative error of one rounding to `dtype`.
double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 1e-15;
    case DType::kFloat32: return 1e-6;
    case DType::kBFloat16: return 1.0 / 256;
    case DType::kFloat16: return 1.0 / 2048;
    default: return 0;
  }
}

void ExpectNear(const HostTensor& actual, const std::function<double(int64_t)>& expected) {
  const double epsilon = Epsilon(actual.dtype());
  HostTensor rounded(actual.dtype(), {1});
  for (int64_t i = 0; i < actual.elements(); ++i) {
    rounded.Set(0, expected(i));  // saturates integers
    const double e = rounded.At(0);
    ASSERT_NEAR(actual.At(i), e, epsilon * (1 + std::fabs(e))) << ToString(actual.dtype()) << " element " << i;
  }
}

// A sum in its type: integers wrap around.
double InType(DType dtype, double sum) {
  return Dispatch(dtype, [&]<class T>() -> double {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return static_cast<T>(static_cast<int64_t>(sum));
    return sum;
  });
}

TEST(FlatTest, FillAndCopy) {
  for (DType dtype : kAllDTypes) {
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{77}, kLarge}) {
      for (double value : {0.0, 1.0, -2.6, 300.0}) {
        const HostTensor filled = SameForAllMachines(n, [&] {
          HostTensor out(dtype, {n});
          flat::Fill(dtype, out.raw(), n, value);
          return out;
        });
        EXPECT_TRUE(filled == HostTensor::Full(dtype, {n}, value)) << ToString(dtype) << " " << value;
      }
      const HostTensor in = Random(dtype, n, "copy", 100);
      EXPECT_TRUE(in == SameForAllMachines(n, [&] {
                    HostTensor out(dtype, {n});
                    flat::Copy(in.raw(), out.raw(), in.bytes());
                    return out;
                  }));
    }
  }
}

TEST(FlatTest, CopyMayOverlap) {
  const TeamScope scope(4);
  for (int64_t distance : {-40'000, -1, 0, 1, 40'000}) {
    std::vector<int> values(300'000);
    std::iota(values.begin(), values.end(), 0);
    std::vector<int> expected = values;
    std::memmove(&expected[50'000 + distance], &expected[50'000], 200'000 * sizeof(int));
    flat::Copy(&values[50'000], &values[50'000 + distance], 200'000 * sizeof(int));
    EXPECT_EQ(values, expected);
  }
}

TEST(FlatTest, CastEqualsHostTensorCast) {
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{19}, int64_t{1027}, kLarge}) {
        if (n == kLarge && !(IsFloat(from) && IsFloat(to))) continue;
        HostTensor in = Random(from, n, "cast", 300);
        if (n > 18 && IsFloat(from)) {
          const double special[] = {0.0,   -0.0,        INFINITY,    -INFINITY,  65504,  65519.99,
                                    65520, 1e30,        -1e30,       6e-8,       2.9e-8, -6.1e-5,
                                    1e-40, 1 + 0x1p-11, 1 + 0x3p-11, 1 + 0x1p-8, 2.5};
          for (int i = 0; i < 17; ++i) in.Set(i, special[i]);
        }
        const HostTensor out = SameForAllMachines(n, [&] {
          HostTensor result(to, {n});
          flat::Cast(from, in.raw(), to, result.raw(), n);
          return result;
        });
        EXPECT_TRUE(out == in.Cast(to)) << ToString(from) << " to " << ToString(to) << ", " << n << " elements";
      }
    }
  }
}

TEST(FlatTest, CastOfEveryHalf) {
  HostTensor halves(DType::kFloat16, {65536}), bfloats(DType::kBFloat16, {65536});
  for (int i = 0; i < 65536; ++i) {
    halves.data<float16>()[i].bits = static_cast<uint16_t>(i);
    bfloats.data<bfloat16>()[i].bits = static_cast<uint16_t>(i);
  }
  for (const HostTensor* in : {&halves, &bfloats}) {
    const HostTensor floats = SameForAllMachines(65536, [&] {
      HostTensor out(DType::kFloat32, {65536});
      flat::Cast(in->dtype(), in->raw(), DType::kFloat32, out.raw(), 65536);
      return out;
    });
    for (int i = 0; i < 65536; ++i) {
      const float expected =
          in == &halves ? HalfBitsToFloat(static_cast<uint16_t>(i)) : static_cast<float>(bfloats.data<bfloat16>()[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(floats.data<float>()[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

TEST(FlatTest, CastOfFloatsOfEveryExponentEqualsTheScalarConversion) {
  std::vector<float> floats;
  PhiloxStream random(1, "bits");
  for (int i = 0; i < 400'000; ++i) floats.push_back(std::bit_cast<float>(random.Next()));
  for (uint32_t high = 0; high < 65536; ++high) {  // exact values, ties and their neighbours
    for (uint32_t low : {0u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      floats.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const int64_t n = static_cast<int64_t>(floats.size());
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    flat::LimitIsa(isa);
    std::vector<float16> halves(n);
    std::vector<bfloat16> bfloats(n);
    flat::Cast(DType::kFloat32, floats.data(), DType::kFloat16, halves.data(), n);
    flat::Cast(DType::kFloat32, floats.data(), DType::kBFloat16, bfloats.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(halves[i].bits, FloatToHalfBits(floats[i])) << floats[i];
      ASSERT_EQ(bfloats[i].bits, bfloat16(floats[i]).bits) << floats[i];
    }
  }
}

TEST(FlatTest, CastFromBoolTakesAnyByte) {
  const unsigned char bytes[] = {0, 1, 2, 255};
  float out[4];
  flat::Cast(DType::kBool, bytes, DType::kFloat32, out, 4);
  EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{0, 1, 1, 1}));
}

TEST(FlatTest, SumAddScale) {
  for (DType dtype : kAllDTypes) {
    std::vector<int64_t> sizes = kSizes;
    sizes.push_back(kLarge);
    for (int64_t n : sizes) {
      const double scale = IsFloat(dtype) ? 4 : 100;
      std::vector<HostTensor> in;
      for (int k = 0; k < 4; ++k) in.push_back(Random(dtype, n, "sum" + std::to_string(k), scale));
      for (size_t count : {0, 1, 2, 4}) {
        if (n == kLarge && count != 4) continue;
        std::vector<const void*> pointers;
        for (size_t k = 0; k < count; ++k) pointers.push_back(in[k].raw());
        const HostTensor sum = SameForAllMachines(n, [&] {
          HostTensor out(dtype, {n});
          flat::Sum(dtype, pointers, out.raw(), n);
          return out;
        });
        ExpectNear(sum, [&](int64_t i) {
          double value = 0;
          for (size_t k = 0; k < count; ++k) value += in[k].At(i);
          return InType(dtype, value);
        });
        if (count < 2) continue;
        for (size_t into : {size_t{0}, count - 1}) {  // in place
          HostTensor out = in[into];
          pointers[into] = out.raw();
          flat::Sum(dtype, pointers, out.raw(), n);
          pointers[into] = in[into].raw();
          EXPECT_TRUE(out == sum) << ToString(dtype);
        }
      }
      const HostTensor added = SameForAllMachines(n, [&] {
        HostTensor out = in[0];
        flat::Add(dtype, in[1].raw(), out.raw(), n);
        return out;
      });
      ExpectNear(added, [&](int64_t i) { return InType(dtype, in[0].At(i) + in[1].At(i)); });
      HostTensor doubled = in[0];
      flat::Add(dtype, doubled.raw(), doubled.raw(), n);
      ExpectNear(doubled, [&](int64_t i) { return InType(dtype, 2 * in[0].At(i)); });
      const HostTensor scaled = SameForAllMachines(n, [&] {
        HostTensor out = in[0];
        flat::Scale(dtype, out.raw(), n, -1.75);
        return out;
      });
      ExpectNear(scaled, [&](int64_t i) { return in[0].At(i) * -1.75; });
    }
  }
}

TEST(FlatTest, SumIsInListOrder) {
  const float big = 1e8f, one = 1.0f, minus = -1e8f;
  float out;
  const void* const forth[] = {&big, &one, &minus};
  flat::Sum(DType::kFloat32, forth, &out, 1);
  EXPECT_EQ(out, 0.0f);
  const void* const back[] = {&big, &minus, &one};
  flat::Sum(DType::kFloat32, back, &out, 1);
  EXPECT_EQ(out, 1.0f);
}

TEST(FlatTest, AllFiniteFindsOneAnywhere) {
  for (DType dtype : kAllDTypes) {
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{37}, kLarge}) {
      HostTensor values = Random(dtype, n, "finite", 100);
      EXPECT_TRUE(flat::AllFinite(dtype, values.raw(), n));
      if (!IsFloat(dtype)) continue;
      for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
        for (double bad : {std::numeric_limits<double>::quiet_NaN(), double{INFINITY}, -double{INFINITY}}) {
          if (n == 0) continue;
          const double kept = values.At(at);
          values.Set(at, bad);
          for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
            flat::LimitIsa(isa);
            for (int team : {1, 3}) {
              const TeamScope scope(team);
              EXPECT_FALSE(flat::AllFinite(dtype, values.raw(), n)) << ToString(dtype) << " " << bad << " at " << at;
            }
          }
          values.Set(at, kept);
        }
      }
    }
  }
  flat::LimitIsa(Isa::kAvx512);
  const float extreme[] = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 1e-45f};
  EXPECT_TRUE(flat::AllFinite(DType::kFloat32, extreme, 3));
}

TEST(FlatTest, SumIsFiniteAsTheSumIs) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const double huge = dtype == DType::kFloat32 ? 3e38 : 1.7e308;  // twice that is infinite
    for (const size_t count : {1, 2, 3, 5}) {
      for (const int64_t n : {int64_t{1}, int64_t{37}, int64_t{2500}}) {
        std::vector<HostTensor> arrays;
        std::vector<const void*> in;
        for (size_t i = 0; i < count; ++i) arrays.push_back(Random(dtype, n, "finite " + std::to_string(i), 100));
        for (const HostTensor& array : arrays) in.push_back(array.raw());
        for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
          flat::LimitIsa(isa);
          EXPECT_TRUE(flat::SumIsFinite(dtype, in, n));
          for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
            const double last = arrays.back().At(at), first = arrays.front().At(at);
            arrays.back().Set(at, NAN);
            EXPECT_FALSE(flat::SumIsFinite(dtype, in, n)) << ToString(dtype) << " " << count << " at " << at;
            arrays.back().Set(at, huge);
            EXPECT_TRUE(flat::SumIsFinite(dtype, in, n));
            arrays.front().Set(at, huge);
            EXPECT_EQ(flat::SumIsFinite(dtype, in, n), count == 1);
            arrays.front().Set(at, first);
            arrays.back().Set(at, last);
          }
        }
      }
    }
  }
  flat::LimitIsa(Isa::kAvx512);
}

TEST(FlatTest, SumOfSquares) {
  for (DType dtype : kAllDTypes) {
    std::vector<int64_t> sizes = kSizes;
    sizes.push_back(kLarge);
    for (int64_t n : sizes) {
      const HostTensor values = Random(dtype, n, "squares", 10);
      double expected = 0;
      for (int64_t i = 0; i < n; ++i) expected += values.At(i) * values.At(i);
      const HostTensor actual = SameForAllMachines(n, [&] {
        HostTensor out(DType::kFloat64, {1});
        out.Set(0, flat::SumOfSquares(dtype, values.raw(), n));
        return out;
      });
      EXPECT_NEAR(actual.At(0), expected, 1e-12 * (1 + expected)) << ToString(dtype) << ", " << n << " elements";
    }
  }
}

TEST(FlatTest, SumOfSquaresOfManyBlocks) {
  const int64_t n = 300 * 16 * 1024 + 5;
  const HostTensor values = HostTensor::Full(DType::kFloat32, {n}, 1.5);
  for (int team : {1, 3}) {
    const TeamScope scope(team);
    EXPECT_EQ(flat::SumOfSquares(DType::kFloat32, values.raw(), n), 2.25 * static_cast<double>(n));
  }
}

// Integer sums are exact beyond float's 24 bits, and wrap around.
TEST(FlatTest, IntegerSumsAreExactAndWrap) {
  const int32_t a = 16'777'217, b = 1, c = std::numeric_limits<int32_t>::max();
  int32_t out;
  const void* const exact[] = {&a, &b};
  flat::Sum(DType::kInt32, exact, &out, 1);
  EXPECT_EQ(out, 16'777'218);
  const void* const large[] = {&c, &b};
  flat::Sum(DType::kInt32, large, &out, 1);
  EXPECT_EQ(out, std::numeric_limits<int32_t>::min());
  const uint8_t low = 200, high = 100;
  uint8_t both = low;
  flat::Add(DType::kUInt8, &high, &both, 1);
  EXPECT_EQ(both, 44);
}

}  // namespace
}  // namespace bindery
