#include "base/host_tensor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/memory.h"

namespace bindery {
namespace {

HostTensor Iota(const Shape& shape, DType dtype = DType::kFloat32) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.Set(i, static_cast<double>(i));
  return tensor;
}

TEST(HostTensorTest, DefaultIsEmpty) {
  const HostTensor tensor;
  EXPECT_EQ(tensor.dtype(), DType::kFloat32);
  EXPECT_EQ(tensor.shape(), (Shape{0}));
  EXPECT_EQ(tensor.elements(), 0);
  EXPECT_EQ(tensor.bytes(), 0);
  EXPECT_TRUE(tensor.data<float>().empty());
  EXPECT_EQ(tensor, HostTensor(DType::kFloat32, {0}));
}

TEST(HostTensorTest, StartsAsAlignedZeros) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    for (int64_t n : {1, 3, 1000, 1 << 20}) {
      const HostTensor tensor(dtype, {n});
      ASSERT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % 64, 0u);
      ASSERT_EQ(tensor.bytes(), n * SizeOf(dtype));
      const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
      ASSERT_EQ(std::accumulate(bytes, bytes + tensor.bytes(), 0), 0);
    }
  }
}

// Sanitizers keep what is freed, or shadows of it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t ResidentBytes() {
  const std::string statm = ReadFile("/proc/self/statm");  // all pages, resident ones
  return std::stoll(statm.substr(statm.find(' '))) * ::getpagesize();
}

// Though malloc keeps all that it ever had: between tensors lie small blocks that stay.
TEST(HostTensorTest, LargeOnesGiveTheirMemoryBack) {
  KeepFreedMemory();
  constexpr int64_t kElements = 1 << 20;
  std::vector<HostTensor> large, small;
  const int64_t before = ResidentBytes();
  for (int i = 0; i < 16; ++i) {
    large.push_back(HostTensor::Full(DType::kFloat32, {kElements}, i));
    small.push_back(HostTensor::Full(DType::kFloat32, {1}, i));
  }
  const int64_t full = ResidentBytes();
  EXPECT_GT(full - before, 15 * 4 * kElements);
  large.clear();
  EXPECT_LT(ResidentBytes() - before, 4 * kElements);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(small[static_cast<size_t>(i)].At(0), i);
}
#endif

TEST(HostTensorTest, AScalarHasOneElement) {
  HostTensor scalar(DType::kFloat64, {});
  scalar.Set(0, 2.5);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.At(0), 2.5);
}

TEST(HostTensorTest, RefusesSizesThatCannotBe) {
  EXPECT_THROW(HostTensor(DType::kInt8, {int64_t{1} << 32, int64_t{1} << 31}), ShapeError);   // elements
  EXPECT_THROW(HostTensor(DType::kFloat32, {int64_t{1} << 61}), ShapeError);                  // bytes
  EXPECT_THROW(HostTensor(DType::kInt8, {std::numeric_limits<int64_t>::max()}), ShapeError);  // bytes and alignment
  EXPECT_THROW(HostTensor(DType::kFloat32, {2, kUnknownDim}), ShapeError);
  EXPECT_THROW(HostTensor(DType::kInt8, {int64_t{1} << 60}), DeviceError);  // memory
  EXPECT_NO_THROW(HostTensor(DType::kFloat32, {0, int64_t{1} << 62, int64_t{1} << 62}));
}

TEST(HostTensorTest, CopyingCopiesTheElements) {
  HostTensor a = HostTensor::From({2, 2}, {1, 2, 3, 4});
  HostTensor b = a;
  b.Set(0, 9);
  EXPECT_EQ(a.At(0), 1);
  EXPECT_NE(a, b);
  a = b;
  EXPECT_EQ(a, b);
  EXPECT_NE(a.raw(), b.raw());
  HostTensor& self = a;
  a = self;
  EXPECT_EQ(a, b);
  const void* address = a.raw();
  const HostTensor moved = std::move(a);
  EXPECT_EQ(moved.raw(), address);
  EXPECT_EQ(moved, b);
  a = moved;  // a tensor that was moved from can be assigned again
  EXPECT_EQ(a, b);
}

TEST(HostTensorTest, FromChecksTheCount) {
  EXPECT_EQ(HostTensor::From({2, 3}, {1, 2, 3, 4, 5, 6}).At(5), 6);
  EXPECT_THROW(HostTensor::From({2, 3}, {1, 2, 3, 4, 5}), ShapeError);
  EXPECT_THROW(HostTensor::From({0}, {1}), ShapeError);
  EXPECT_NO_THROW(HostTensor::From({0}, {}));
}

TEST(HostTensorTest, FullStoresByTheTypesRules) {
  EXPECT_EQ(HostTensor::Full(DType::kInt32, {3}, 2.5).At(2), 2);
  EXPECT_EQ(HostTensor::Full(DType::kUInt8, {3}, 300).At(1), 255);
  EXPECT_EQ(HostTensor::Full(DType::kBool, {3}, 0.5).At(0), 1);
  EXPECT_EQ(HostTensor::Full(DType::kFloat16, {3}, 1.0 / 3).At(0), 0.333251953125);
}

TEST(HostTensorTest, TypedViewsMustFit) {
  HostTensor tensor(DType::kInt32, {4});
  tensor.data<int32_t>()[2] = 7;
  EXPECT_EQ(tensor.At(2), 7);
  EXPECT_THROW(tensor.data<float>(), Error);
  EXPECT_THROW(std::as_const(tensor).data<int64_t>(), Error);
  EXPECT_EQ(tensor.data<int32_t>().size(), 4u);
}

TEST(HostTensorTest, AtAndSetCheckTheIndex) {
  HostTensor tensor(DType::kFloat32, {2});
  EXPECT_THROW(tensor.At(2), ShapeError);
  EXPECT_THROW(tensor.At(-1), ShapeError);
  EXPECT_THROW(tensor.Set(2, 0), ShapeError);
}

TEST(HostTensorTest, CastsBetweenAllTypes) {
  for (int from = 0; from < kNumDTypes; ++from) {
    for (int to = 0; to < kNumDTypes; ++to) {
      const HostTensor tensor = Iota({2, 4}, static_cast<DType>(from));
      const HostTensor cast = tensor.Cast(static_cast<DType>(to));
      ASSERT_EQ(cast.dtype(), static_cast<DType>(to));
      ASSERT_EQ(cast.shape(), (Shape{2, 4}));
      for (int64_t i = 0; i < 8; ++i) {
        const bool boolean = static_cast<DType>(from) == DType::kBool || static_cast<DType>(to) == DType::kBool;
        ASSERT_EQ(cast.At(i), boolean ? i != 0 : i);
      }
    }
  }
}

TEST(HostTensorTest, CastToTheSameTypeKeepsEveryBit) {
  HostTensor big(DType::kInt64, {1});
  big.data<int64_t>()[0] = (int64_t{1} << 62) + 1;  // not a double
  EXPECT_EQ(big.Cast(DType::kInt64), big);
}

TEST(HostTensorTest, BoolsOfAnyByteCountAsTrue) {
  HostTensor tensor(DType::kBool, {2});
  std::memset(tensor.raw(), 0xfe, 1);
  EXPECT_EQ(tensor.At(0), 1);
  EXPECT_EQ(tensor.Cast(DType::kInt32).At(0), 1);
  EXPECT_EQ(tensor.Cast(DType::kInt32).At(1), 0);
}

TEST(HostTensorTest, ReshapeKeepsElementsInOrder) {
  const HostTensor tensor = Iota({2, 6});
  const HostTensor reshaped = tensor.Reshape({3, 4});
  EXPECT_EQ(reshaped.shape(), (Shape{3, 4}));
  EXPECT_EQ(MaxAbsDiff(reshaped, Iota({3, 4})), 0);
  EXPECT_THROW(tensor.Reshape({5}), ShapeError);
  EXPECT_EQ(HostTensor(DType::kFloat32, {0, 3}).Reshape({7, 0}).shape(), (Shape{7, 0}));
}

TEST(HostTensorTest, SlicesAlongEveryAxis) {
  const HostTensor tensor = Iota({2, 3, 4}, DType::kInt32);
  for (int axis = 0; axis < 3; ++axis) {
    for (int64_t begin = 0; begin <= tensor.shape()[axis]; ++begin) {
      for (int64_t end = begin; end <= tensor.shape()[axis]; ++end) {
        const HostTensor slice = tensor.Slice(axis, begin, end);
        ASSERT_EQ(slice.shape(), tensor.shape().With(axis, end - begin));
        int64_t index = 0;
        for (int64_t i = 0; i < slice.shape()[0]; ++i) {
          for (int64_t j = 0; j < slice.shape()[1]; ++j) {
            for (int64_t k = 0; k < slice.shape()[2]; ++k) {
              const int64_t a = i + (axis == 0 ? begin : 0), b = j + (axis == 1 ? begin : 0),
                            c = k + (axis == 2 ? begin : 0);
              ASSERT_EQ(slice.At(index++), (a * 3 + b) * 4 + c);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(tensor.Slice(-1, 1, 2), tensor.Slice(2, 1, 2));
  EXPECT_THROW(tensor.Slice(0, -1, 1), ShapeError);
  EXPECT_THROW(tensor.Slice(0, 2, 1), ShapeError);
  EXPECT_THROW(tensor.Slice(0, 0, 3), ShapeError);
  EXPECT_THROW(tensor.Slice(3, 0, 1), ShapeError);
}

TEST(HostTensorTest, ConcatenateUndoesSlices) {
  const HostTensor tensor = Iota({4, 3, 5}, DType::kInt64);
  for (int axis = -3; axis < 3; ++axis) {
    const int64_t extent = tensor.shape()[axis];
    const HostTensor parts[] = {tensor.Slice(axis, 0, 1), tensor.Slice(axis, 1, 1), tensor.Slice(axis, 1, extent)};
    EXPECT_EQ(Concatenate(parts, axis), tensor) << axis;
  }
}

TEST(HostTensorTest, ConcatenateRefusesPartsThatDoNotFit) {
  const auto join = [](const HostTensor& a, const HostTensor& b, int axis) {
    const HostTensor parts[] = {a, b};
    return Concatenate(parts, axis);
  };
  const HostTensor a(DType::kFloat32, {2, 3});
  EXPECT_EQ(join(a, HostTensor(DType::kFloat32, {5, 3}), 0).shape(), (Shape{7, 3}));
  EXPECT_THROW(join(a, HostTensor(DType::kFloat32, {5, 3}), 1), ShapeError);
  EXPECT_THROW(join(a, HostTensor(DType::kFloat32, {2, 3, 1}), 0), ShapeError);
  EXPECT_THROW(join(a, HostTensor(DType::kFloat64, {2, 3}), 0), ShapeError);
  EXPECT_THROW(join(a, a, 2), ShapeError);
  EXPECT_THROW(Concatenate({}, 0), ShapeError);
}

TEST(HostTensorTest, EqualityIsOfBits) {
  EXPECT_NE(HostTensor::Full(DType::kFloat32, {1}, 0.0), HostTensor::Full(DType::kFloat32, {1}, -0.0));
  EXPECT_EQ(HostTensor::Full(DType::kFloat32, {1}, NAN), HostTensor::Full(DType::kFloat32, {1}, NAN));
  EXPECT_NE(HostTensor(DType::kFloat32, {2, 3}), HostTensor(DType::kFloat32, {3, 2}));
  EXPECT_NE(HostTensor(DType::kFloat32, {1}), HostTensor(DType::kInt32, {1}));
}

TEST(HostTensorTest, MaxAbsDiffTreatsSpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto difference = [](double a, double b) {
    return MaxAbsDiff(HostTensor::Full(DType::kFloat32, {2}, a), HostTensor::Full(DType::kFloat64, {2}, b));
  };
  EXPECT_EQ(difference(1, 3.5), 2.5);
  EXPECT_EQ(difference(NAN, NAN), 0);
  EXPECT_EQ(difference(NAN, 1), infinity);
  EXPECT_EQ(difference(1, NAN), infinity);
  EXPECT_EQ(difference(infinity, infinity), 0);
  EXPECT_EQ(difference(infinity, -infinity), infinity);
  EXPECT_EQ(difference(infinity, 1), infinity);
  EXPECT_EQ(MaxAbsDiff(HostTensor::From({3}, {1, 2, 3}), HostTensor::From({3}, {1, -2, 2})), 4);
  EXPECT_EQ(MaxAbsDiff(HostTensor(), HostTensor()), 0);
  EXPECT_THROW(MaxAbsDiff(HostTensor(DType::kFloat32, {1}), HostTensor(DType::kFloat32, {2})), ShapeError);
}

}  // namespace
}  // namespace bindery
