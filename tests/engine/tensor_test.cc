#include "engine/tensor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/error.h"

namespace bindery {
namespace {

using MakeEngine = std::shared_ptr<Engine> (*)();

std::shared_ptr<Engine> Threaded() { return MakeThreadedEngine(); }

class TensorTest : public testing::TestWithParam<MakeEngine> {
 protected:
  Tensor New(DType dtype, const Shape& shape, int device = 0) { return Tensor(engine_, Cpu(device), dtype, shape); }
  Tensor New(const HostTensor& values, int device = 0) {
    Tensor tensor = New(values.dtype(), values.shape(), device);
    tensor.CopyFrom(values);
    return tensor;
  }
  // Fails `var`, as a step that breaks would.
  void Break(const Tensor& tensor) {
    engine_->Push(
        {"broken step", Cpu(0), {}, {tensor.var()}, {}, [](const OpContext&) { throw DataError("bad batch"); }});
  }

  std::shared_ptr<Engine> engine_ = GetParam()();
};

std::string EngineName(const testing::TestParamInfo<MakeEngine>& info) { return info.index ? "inline" : "threaded"; }
INSTANTIATE_TEST_SUITE_P(Engines, TensorTest, testing::Values(&Threaded, &MakeInlineEngine), EngineName);

HostTensor Counting(DType dtype, const Shape& shape) {
  HostTensor result(dtype, shape);
  for (int64_t i = 0; i < result.elements(); ++i) result.Set(i, static_cast<double>(i % 100));
  return result;
}

TEST_P(TensorTest, StartsAsZerosWithItsOwnVariable) {
  EXPECT_FALSE(Tensor().defined());
  for (int round = 0; round < 2; ++round) {  // the second one from the pool, full of the first one's values
    const Tensor tensor = New(DType::kFloat32, {3, 4}, 1);
    EXPECT_TRUE(tensor.defined());
    EXPECT_EQ(tensor.device(), Cpu(1));
    EXPECT_EQ(tensor.elements(), 12);
    EXPECT_EQ(tensor.bytes(), 48);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0u);
    EXPECT_TRUE(tensor.ToHost() == HostTensor(DType::kFloat32, {3, 4}));
    tensor.Fill(2.5);
    EXPECT_TRUE(tensor.ToHost() == HostTensor::Full(DType::kFloat32, {3, 4}, 2.5));
  }
  EXPECT_NE(New(DType::kFloat32, {1}).var(), New(DType::kFloat32, {1}).var());
}

TEST_P(TensorTest, EmptyAndScalarTensors) {
  const Tensor empty = New(DType::kFloat64, {0, 5});
  empty.Fill(1);
  empty.CopyFrom(HostTensor(DType::kFloat32, {0, 5}));
  EXPECT_EQ(empty.ToHost().shape(), (Shape{0, 5}));
  const Tensor scalar = New(DType::kInt32, {});
  scalar.Fill(-3);
  EXPECT_EQ(scalar.ToHost().At(0), -3);
}

TEST_P(TensorTest, CopiesFromHostAndCasts) {
  HostTensor source = Counting(DType::kFloat32, {5, 7});
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt64, DType::kUInt8}) {
    const Tensor tensor = New(dtype, {5, 7});
    HostTensor given = source;
    tensor.CopyFrom(given);
    given.Set(0, -1);  // may be changed at once
    EXPECT_TRUE(tensor.ToHost() == source.Cast(dtype)) << ToString(dtype);
  }
}

TEST_P(TensorTest, CopiesBetweenDevicesAndCasts) {
  const HostTensor values = Counting(DType::kFloat32, {300, 400});
  const Tensor a = New(values, 0), b = New(DType::kBFloat16, {300, 400}, 1), c = New(DType::kFloat32, {300, 400}, 2);
  b.CopyFrom(a);
  c.CopyFrom(b);
  a.Fill(0);  // after the copy, by the variables' order
  EXPECT_TRUE(c.ToHost() == values);
  EXPECT_EQ(a.ToHost().At(77), 0);
}

TEST_P(TensorTest, ViewsShareMemoryAndVariable) {
  const Tensor tensor = New(Counting(DType::kInt32, {4, 3}));
  const Tensor flat = tensor.Reshape({12}), rows = tensor.Slice(1, 3), copy = tensor;
  EXPECT_EQ(flat.data(), tensor.data());
  EXPECT_EQ(rows.var(), tensor.var());
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_TRUE(rows.ToHost() == tensor.ToHost().Slice(0, 1, 3));
  rows.Slice(1, 2).Fill(50);
  copy.Slice(0, 1).CopyFrom(tensor.Slice(3, 4));
  EXPECT_TRUE(flat.ToHost() ==
              New(HostTensor::From({12}, {9, 10, 11, 3, 4, 5, 50, 50, 50, 9, 10, 11})).ToHost().Cast(DType::kInt32));
  flat.Slice(1, 12).CopyFrom(flat.Slice(0, 11));  // overlapping
  EXPECT_TRUE(flat.ToHost() == HostTensor::From({12}, {9, 9, 10, 11, 3, 4, 5, 50, 50, 50, 9, 10}).Cast(DType::kInt32));
  EXPECT_EQ(tensor.Slice(2, 2).elements(), 0);
}

TEST_P(TensorTest, WrongShapesAreErrors) {
  const Tensor tensor = New(DType::kFloat32, {4, 3});
  EXPECT_THROW(tensor.Reshape({13}), ShapeError);
  EXPECT_THROW(tensor.Reshape({-1, 3}), ShapeError);
  EXPECT_THROW(tensor.Slice(-1, 2), ShapeError);
  EXPECT_THROW(tensor.Slice(3, 2), ShapeError);
  EXPECT_THROW(tensor.Slice(0, 5), ShapeError);
  EXPECT_THROW(New(DType::kFloat32, {}).Slice(0, 0), ShapeError);
  EXPECT_THROW(tensor.CopyFrom(HostTensor(DType::kFloat32, {12})), ShapeError);
  EXPECT_THROW(tensor.CopyFrom(New(DType::kFloat32, {3, 4})), ShapeError);
  EXPECT_THROW(New(DType::kFloat32, {int64_t{1} << 40, int64_t{1} << 40}), ShapeError);
  EXPECT_THROW(New(DType::kFloat32, {int64_t{1} << 50}), DeviceError);
  EXPECT_NO_THROW(engine_->WaitAll());
}

TEST_P(TensorTest, EmptyHandlesAndForeignEnginesAreErrors) {
  const Tensor none, tensor = New(DType::kFloat32, {2});
  EXPECT_THROW(none.ToHost(), Error);
  EXPECT_THROW(none.Fill(0), Error);
  EXPECT_THROW(none.Wait(), Error);
  EXPECT_THROW(none.Reshape({0}), Error);
  EXPECT_THROW(none.Slice(0, 0), Error);
  EXPECT_THROW(tensor.CopyFrom(none), Error);
  EXPECT_THROW(Tensor(nullptr, Cpu(0), DType::kFloat32, {2}), Error);
  EXPECT_THROW(Tensor(engine_, Cpu(0), DType::kFloat32, {2}, nullptr, nullptr, engine_->NewVar()), Error);
  EXPECT_THROW(Tensor(engine_, Cpu(0), DType::kFloat32, {2}, tensor.data(), nullptr, nullptr), Error);
  EXPECT_THROW(tensor.CopyFrom(Tensor(MakeInlineEngine(), Cpu(0), DType::kFloat32, {2})), Error);
}

TEST_P(TensorTest, OnMemoryThatExists) {
  const auto memory = std::make_shared<std::vector<float>>(6, 1.0f);
  const VarPtr var = engine_->NewVar();
  const Tensor a(engine_, Cpu(0), DType::kFloat32, {2}, memory->data(), memory, var);
  const Tensor b(engine_, Cpu(0), DType::kFloat32, {4}, memory->data() + 2, memory, var);
  a.Fill(3);
  b.CopyFrom(HostTensor::From({4}, {4, 5, 6, 7}));
  engine_->Wait(var);
  EXPECT_EQ(*memory, (std::vector<float>{3, 3, 4, 5, 6, 7}));
}

TEST_P(TensorTest, ReadingRethrowsTheErrorThatTravelledIn) {
  const Tensor a = New(DType::kFloat32, {2}), b = New(DType::kFloat32, {2}, 1), other = New(DType::kFloat32, {2});
  Break(a);
  b.CopyFrom(a);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(a.ToHost(), DataError);
    EXPECT_THROW(b.ToHost(), DataError);
    EXPECT_THROW(b.Wait(), DataError);
    EXPECT_NO_THROW(other.ToHost());
  }
  b.Fill(1);  // written anew
  EXPECT_EQ(b.ToHost().At(1), 1);
  a.Reshape({2, 1}).CopyFrom(HostTensor::From({2, 1}, {8, 9}));  // a view of all of it
  EXPECT_EQ(a.ToHost().At(1), 9);
}

// One slice's failure must not hide behind another slice's success: reading the whole would give stale values.
TEST_P(TensorTest, FailureOfASliceStaysWithTheWhole) {
  const Tensor whole = New(DType::kFloat32, {4}), good = New(DType::kFloat32, {2}, 1),
               bad = New(DType::kFloat32, {2}, 2);
  Break(bad);
  whole.Slice(0, 2).CopyFrom(bad);
  whole.Slice(2, 4).CopyFrom(good);
  EXPECT_THROW(whole.ToHost(), DataError);
  engine_->Recover();
  bad.Fill(2);
  whole.Slice(0, 2).CopyFrom(bad);
  whole.Slice(2, 4).CopyFrom(good);
  EXPECT_TRUE(whole.ToHost() == HostTensor::From({4}, {2, 2, 0, 0}));
}

TEST_P(TensorTest, WritingAndReadingInsideAnOperation) {
  const Tensor tensor = New(DType::kFloat32, {3});
  std::atomic<bool> refused{false};
  engine_->Push({"inside", Cpu(0), {}, {}, {}, [&](const OpContext&) {
                   tensor.CopyFrom(HostTensor::From({3}, {1, 2, 3}));
                   try {
                     tensor.ToHost();
                   } catch (const Error&) {
                     refused = true;
                   }
                 }});
  engine_->WaitAll();
  EXPECT_TRUE(refused);
  EXPECT_EQ(tensor.ToHost().At(2), 3);
}

TEST_P(TensorTest, MemoryLivesUntilTheLastOperationIsOver) {
  const int64_t before = DefaultStorage()->Stats(Cpu(3)).in_use;
  HostTensor result;
  {
    const Tensor a = New(Counting(DType::kFloat32, {1000}), 3), b = New(DType::kFloat32, {1000}, 3);
    for (int i = 0; i < 20; ++i) (i % 2 ? a : b).CopyFrom(i % 2 ? b : a);
    Tensor c = New(DType::kFloat32, {1000}, 3);
    c.CopyFrom(b);
    result = c.ToHost();
  }
  EXPECT_TRUE(result == Counting(DType::kFloat32, {1000}));
  engine_->WaitAll();
  EXPECT_EQ(DefaultStorage()->Stats(Cpu(3)).in_use, before);
}

TEST(TensorEngineTest, TensorMayOutliveEverythingElse) {
  Tensor tensor;
  {
    const auto engine = MakeThreadedEngine();
    tensor = Tensor(engine, Cpu(0), DType::kFloat32, {4});
  }
  tensor.Fill(3);
  EXPECT_EQ(tensor.ToHost().At(3), 3);
  EXPECT_EQ(Tensor(Cpu(0), DType::kFloat32, {1}).engine(), DefaultEngine());
}

}  // namespace
}  // namespace bindery
