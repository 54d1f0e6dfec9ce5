// Rows pushed to and pulled from a KVStore, with and without an optimizer in it.
#include <gtest/gtest.h>

#include "kvstore/kvstore.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/optimizers/key_updater.h"

namespace bindery {
namespace {

Tensor On(Device device, const HostTensor& value) {
  Tensor tensor(DefaultEngine(), device, value.dtype(), value.shape());
  tensor.CopyFrom(value);
  return tensor;
}

RowTensors Rows(Device device, const std::vector<int64_t>& numbers, const HostTensor& rows) {
  HostTensor list(DType::kInt64, {static_cast<int64_t>(numbers.size())});
  std::ranges::copy(numbers, list.data<int64_t>().begin());
  return {On(device, list), On(device, rows)};
}

HostTensor Matrix(const Shape& shape, std::initializer_list<float> values) { return HostTensor::From(shape, values); }

HostTensor Pulled(KVStore* kv, int64_t rows, int64_t width) {
  const Tensor out(DefaultEngine(), Cpu(0), DType::kFloat32, {rows, width});
  kv->Pull("table", std::vector{out});
  return out.ToHost();
}

TEST(RowsInAStore, SumsOfRowsTakeThePlaceOfTheStoredOnes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const auto of = [&](const Shape& shape, std::initializer_list<float> values) {
      return HostTensor::From(shape, values).Cast(dtype);
    };
    const auto kv = KVStore::Create(KVStoreType::kDevice);
    kv->Init("table", of({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
    kv->PushRows("table", std::vector{Rows(Cpu(0), {2, 0, 2}, of({3, 2}, {10, 20, 30, 40, 50, 60})),
                                      Rows(Cpu(1), {-1, 2}, of({2, 2}, {9, 9, 100, 200}))});
    const Tensor all(DefaultEngine(), Cpu(0), dtype, {4, 2});
    kv->Pull("table", std::vector{all});
    EXPECT_EQ(all.ToHost(), of({4, 2}, {30, 40, 3, 4, 160, 280, 7, 8}));
    const RowTensors out = Rows(Cpu(1), {3, 0, -1, 3}, HostTensor::Full(dtype, {4, 2}, 5));
    kv->PullRows("table", std::vector{out});
    EXPECT_EQ(out.rows.ToHost(), of({4, 2}, {7, 8, 30, 40, 0, 0, 7, 8}));
  }
}

TEST(RowsInAStore, PlainDescentMovesTheSameBitsByRowsAndWhole) {
  const auto whole = KVStore::Create(KVStoreType::kDevice), rows = KVStore::Create(KVStoreType::kDevice);
  const KeyedOptimizer of_whole(MakeOptimizer("sgd(lr=0.1)"), {.rescale = 1.0 / 3});
  const KeyedOptimizer of_rows(MakeOptimizer("sgd(lr=0.1)"), {.rescale = 1.0 / 3});
  whole->SetUpdater(of_whole.updater());
  rows->SetRowUpdater(of_rows.row_updater());
  const HostTensor table = Matrix({3, 2}, {1, 2, 3, 4, 5, 6});
  whole->Init("table", table);
  rows->Init("table", table);
  for (int step = 0; step < 3; ++step) {
    whole->Push("table", std::vector{On(Cpu(0), Matrix({3, 2}, {0, 0, 0.25f, 0.5f, 1.125f, -3}))});
    rows->PushRows("table", std::vector{Rows(Cpu(0), {2, 1}, Matrix({2, 2}, {1.125f, -3, 0.25f, 0.5f}))});
  }
  EXPECT_EQ(Pulled(rows.get(), 3, 2), Pulled(whole.get(), 3, 2));
}

TEST(RowsInAStore, StatesOfOtherRowsStandStill) {
  const auto kv = KVStore::Create(KVStoreType::kDevice);
  const KeyedOptimizer optimizer(MakeOptimizer("sgd(lr=1, momentum=0.5)"));
  kv->SetRowUpdater(optimizer.row_updater());
  kv->Init("table", HostTensor(DType::kFloat32, {3, 1}));
  for (const int64_t row : {0, 2, 2}) kv->PushRows("table", std::vector{Rows(Cpu(0), {row}, Matrix({1, 1}, {8}))});
  EXPECT_EQ(Pulled(kv.get(), 3, 1), Matrix({3, 1}, {-8, 0, -20}));
  const HostTensorMap state = optimizer.State();
  EXPECT_EQ(state.at("table:momentum"), Matrix({3}, {-8, 0, -12}));
  EXPECT_EQ(state.at("table:step").At(0), 3);
}

TEST(RowsInAStore, RowsWithoutElements) {
  const auto kv = KVStore::Create(KVStoreType::kDevice);
  const KeyedOptimizer optimizer(MakeOptimizer("adam(lr=1)"));
  for (const bool updates : {false, true}) {
    kv->SetRowUpdater(updates ? optimizer.row_updater() : nullptr);
    const Key key = updates ? "updated" : "replaced";
    kv->Init(key, HostTensor(DType::kFloat32, {3, 0}));
    const RowTensors rows = Rows(Cpu(0), {2, -1, 2}, HostTensor(DType::kFloat32, {3, 0}));
    kv->PushRows(key, std::vector{rows});
    kv->PullRows(key, std::vector{rows});
    EXPECT_EQ(rows.rows.ToHost(), HostTensor(DType::kFloat32, {3, 0}));
  }
}

TEST(RowsInAStore, NoRows) {
  const auto kv = KVStore::Create(KVStoreType::kDevice);
  const KeyedOptimizer optimizer(MakeOptimizer("adam(lr=1)"));
  kv->SetRowUpdater(optimizer.row_updater());
  kv->Init("table", Matrix({2, 1}, {5, 6}));
  kv->PushRows("table", std::vector{Rows(Cpu(0), {}, HostTensor(DType::kFloat32, {0, 1}))});
  kv->PushRows("table", std::vector{Rows(Cpu(0), {-1, -7}, Matrix({2, 1}, {8, 8}))});
  EXPECT_EQ(Pulled(kv.get(), 2, 1), Matrix({2, 1}, {5, 6}));
}

TEST(RowsInAStore, WhatDoesNotFitIsRefused) {
  const auto kv = KVStore::Create(KVStoreType::kDevice);
  kv->Init("table", HostTensor(DType::kFloat32, {3, 2}));
  const auto message = [&](const RowTensors& rows) {
    return MessageOf<Error>([&] { kv->PushRows("table", std::vector{rows}); });
  };
  EXPECT_NE(message(Rows(Cpu(0), {1}, HostTensor(DType::kFloat32, {1, 3})))
                .find("key \"table\", value 0: expected numbers of int64 and rows (1, 2) of float32"),
            std::string::npos);
  EXPECT_NE(message({On(Cpu(0), HostTensor(DType::kInt32, {1})), On(Cpu(0), HostTensor(DType::kFloat32, {1, 2}))})
                .find("got numbers of int32"),
            std::string::npos);
  EXPECT_NE(
      message(Rows(Accelerator(0), {1}, HostTensor(DType::kFloat32, {1, 2}))).find("memory that the host addresses"),
      std::string::npos);
  kv->SetUpdater([](const Key&, DType, const void*, void*, int64_t) {});
  EXPECT_EQ(message(Rows(Cpu(0), {1}, HostTensor(DType::kFloat32, {1, 2}))),
            "Error: key \"table\": the updater takes whole values; set one of rows");
  kv->SetUpdater(nullptr);
  kv->SetRowUpdater([](const Key&, const RowSums&, void*, int64_t) {});
  const std::vector whole = {On(Cpu(0), HostTensor::Full(DType::kFloat32, {3, 2}, 1))};
  const std::string takes_rows = "Error: key \"table\": the updater takes rows; set one of whole values";
  EXPECT_EQ(MessageOf<Error>([&] { kv->Push("table", whole); }), takes_rows);
  EXPECT_EQ(MessageOf<Error>([&] { kv->PushPull("table", whole, whole); }), takes_rows);
  EXPECT_EQ(Pulled(kv.get(), 3, 2), HostTensor(DType::kFloat32, {3, 2}));
  kv->SetRowUpdater(nullptr);
  kv->PushRows("table", std::vector{Rows(Cpu(0), {1, 3}, HostTensor::Full(DType::kFloat32, {2, 2}, 1))});
  EXPECT_NE(MessageOf<DataError>([&] { Pulled(kv.get(), 3, 2); }).find("key \"table\": row 3 is not in 0..2"),
            std::string::npos);
  EXPECT_NE(MessageOf<Error>([] { KeyedOptimizer(MakeOptimizer("lars(lr=1)")).row_updater(); }).find("goes by norms"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
