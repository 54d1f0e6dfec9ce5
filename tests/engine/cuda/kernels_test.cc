// The kernels for GPUs, by their bodies for CPUs: the answers of the CPU's own loops, bit for bit, whatever the number
// of blocks and threads, whatever the alignment.
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/cuda/padding.h"
#include "engine/kernels/flat.h"
#include "tests/engine/cuda/kernel_launches.h"

namespace bindery {
namespace {

// What is cleared of arguments that are compared as bytes is nothing that their constructor writes.
TEST(CudaKernelsTest, PaddingIsNoPartOfArguments) {
  const auto check = []<class Args>(std::type_identity<Args>) {
    alignas(16) unsigned char cleared[sizeof(Args)], made[2][sizeof(Args)];
    std::memset(cleared, 0xff, sizeof cleared);
    cuda::ClearPadding(reinterpret_cast<Args*>(cleared));
    for (int i : {0, 1}) std::memset(made[i], i == 0 ? 0 : 0xff, sizeof(Args));
    asm volatile("" : : "r"(made) : "memory");
    for (int i : {0, 1}) new (made[i]) Args;
    asm volatile("" : : "r"(made) : "memory");
    for (size_t at = 0; at < sizeof(Args); ++at) {
      EXPECT_TRUE(cleared[at] != 0 || made[0][at] != made[1][at]) << Args::kName << " " << at;
    }
  };
  [&]<class... Args>(std::type_identity<std::tuple<Args...>>) {
    (check(std::type_identity<Args>()), ...);
  }(std::type_identity<cuda::AllKernels>());
}

TEST(CudaKernelsTest, Fill) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const Launch& launch : kLaunches) {
        Values expected(dtype, n, 1), actual(dtype, n, 1);
        flat::Fill(dtype, expected.data(), n, 1.7);
        cuda::FillArgs args{.out = actual.data(), .units = n, .unit = static_cast<int32_t>(SizeOf(dtype))};
        std::memcpy(&args.value, expected.data(), static_cast<size_t>(SizeOf(dtype)));
        RunBy(launch, args);
        EXPECT_EQ(actual, expected) << ToString(dtype) << " " << n;
      }
    }
  }
}

TEST(CudaKernelsTest, CopiesRows) {
  for (const int32_t unit : {1, 2, 4, 8, 16}) {
    for (const Launch& launch : kLaunches) {
      const int64_t rows = 5, units = 7, stride = 11 * unit;
      Values in = Numbers(DType::kUInt8, 2 * rows * stride, 0, 1), out(DType::kUInt8, rows * stride);
      cuda::CopyArgs args{.in = in.data(),
                          .out = out.data(),
                          .rows = rows,
                          .units = units,
                          .in_stride = 2 * stride,
                          .out_stride = stride,
                          .unit = unit};
      RunBy(launch, args);
      for (int64_t i = 0; i < rows * stride; ++i) {
        const int64_t row = i / stride, at = i % stride;
        EXPECT_EQ(out.data()[i], at < units * unit ? in.data()[row * 2 * stride + at] : 0) << unit << " " << i;
      }
    }
  }
}

TEST(CudaKernelsTest, CastsBetweenAllTypes) {
  for (const DType from : AllTypes()) {
    for (const DType to : AllTypes()) {
      for (const int64_t n : kSizes) {
        for (const int64_t offset : {0, 1}) {
          const Values in = Numbers(from, n, offset, 2);
          Values expected(to, n), actual(to, n);
          flat::Cast(from, in.data(), to, expected.data(), n);
          if (from == to) continue;  // a copy
          RunOnCpu(cuda::CastArgs{.in = in.data(), .out = actual.data(), .n = n, .from = from, .to = to}, 3, 32);
          EXPECT_EQ(actual, expected) << ToString(from) << " to " << ToString(to) << ", " << n;
        }
      }
    }
  }
}

TEST(CudaKernelsTest, Sums) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const Launch& launch : kLaunches) {
        for (const int count : {2, 3}) {
          for (const int64_t offset : {0, 1}) {
            std::vector<Values> in;
            std::vector<const void*> addresses;
            for (int k = 0; k < count; ++k) {
              in.push_back(Numbers(dtype, n, k == 1 ? offset : 0, static_cast<uint64_t>(k)));
              if (k > 0 && IsFloat(dtype)) flat::Fill(dtype, in.back().data(), n, 0.3);  // no infinity less infinity
            }
            cuda::SumArgs args{.count = count, .dtype = dtype, .n = n};
            for (int k = 0; k < count; ++k) addresses.push_back(args.in[k] = in[static_cast<size_t>(k)].data());
            Values expected(dtype, n);
            flat::Sum(dtype, addresses, expected.data(), n);
            args.out = in[0].data();  // in place
            RunBy(launch, args);
            EXPECT_EQ(in[0], expected) << ToString(dtype) << " " << n;
          }
        }
      }
    }
  }
}

TEST(CudaKernelsTest, Scales) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const double factor : {0.25, -3.7}) {
        Values actual = Numbers(dtype, n, 1, 3), expected = actual;
        flat::Scale(dtype, expected.data(), n, factor);
        RunOnCpu(cuda::ScaleArgs{.out = actual.data(), .n = n, .factor = factor, .dtype = dtype}, 5, 7);
        EXPECT_EQ(actual, expected) << ToString(dtype) << " " << n;
      }
    }
  }
}

}  // namespace
}  // namespace bindery
