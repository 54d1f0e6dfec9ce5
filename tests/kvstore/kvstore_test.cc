#include "kvstore/kvstore.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "base/error.h"
#include "base/philox.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

constexpr KVStoreType kTypes[] = {KVStoreType::kLocal, KVStoreType::kDevice};

// Every combination of store and engine.
class KVStoreTest : public testing::TestWithParam<std::tuple<KVStoreType, bool>> {
 protected:
  KVStoreTest()
      : engine_(std::get<1>(GetParam()) ? MakeThreadedEngine() : MakeInlineEngine()),
        store_(KVStore::Create(std::get<0>(GetParam()), engine_)) {}

  Tensor Make(int device, const Shape& shape, double value, DType dtype = DType::kFloat32) const {
    Tensor tensor(engine_, TestDevice(device), dtype, shape);
    tensor.Fill(value);
    return tensor;
  }
  // One on each of `devices` devices.
  std::vector<Tensor> MakeList(int devices, const Shape& shape, double value) const {
    std::vector<Tensor> tensors;
    for (int i = 0; i < devices; ++i) tensors.push_back(Make(i, shape, value));
    return tensors;
  }
  // A tensor whose content is an error.
  Tensor MakeFailed(int device, const Shape& shape, const std::string& why) const {
    const Tensor tensor = Make(device, shape, 0);
    engine_->Push({.name = "spoil",
                   .device = TestDevice(device),
                   .reads = {},
                   .writes = {tensor.var()},
                   .updates = {},
                   .run = [why](const OpContext&) { Throw<NumericError>("{}", why); }});
    return tensor;
  }
  static void ExpectAll(const std::vector<Tensor>& tensors, double value) {
    for (const Tensor& tensor : tensors)
      EXPECT_EQ(tensor.ToHost(), HostTensor::Full(tensor.dtype(), tensor.shape(), value));
  }
  template <class E, class F>
  static void ExpectError(const std::string& message, F f) {
    try {
      f();
      FAIL() << "no error, expected: " << message;
    } catch (const E& error) {
      EXPECT_EQ(error.what(), message);
    }
  }

  const std::shared_ptr<Engine> engine_;
  const std::unique_ptr<KVStore> store_;
};

INSTANTIATE_TEST_SUITE_P(All, KVStoreTest, testing::Combine(testing::ValuesIn(kTypes), testing::Bool()),
                         [](const auto& info) {
                           return std::string(ToString(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "Threaded" : "Inline");
                         });

KeyUpdater AddTo() {
  return [](const Key&, DType, const void* sum, void* stored, int64_t elements) {
    for (int64_t i = 0; i < elements; ++i) static_cast<float*>(stored)[i] += static_cast<const float*>(sum)[i];
  };
}

// E41: this test and the next ones, up to the broadcast, and the errors.
TEST_P(KVStoreTest, InitThenPull) {
  store_->Init("w", HostTensor::Full(DType::kFloat32, {4, 4}, 4));
  const auto out = MakeList(3, {4, 4}, 0);
  store_->Pull("w", out);
  ExpectAll(out, 4);
}

TEST_P(KVStoreTest, PushSumsOverDevicesAndReplaces) {
  store_->Init(int64_t{3}, Make(1, {4, 4}, 0));
  const auto ones = MakeList(4, {4, 4}, 1), out = MakeList(4, {4, 4}, 0);
  for (int i = 0; i < 3; ++i) {  // replaced, not added
    store_->Push(int64_t{3}, ones);
    store_->Pull(int64_t{3}, out);
    ExpectAll(out, 4);
  }
  store_->Push(int64_t{3}, MakeList(1, {4, 4}, 7));
  store_->Pull(int64_t{3}, out);
  ExpectAll(out, 7);
}

TEST_P(KVStoreTest, Lists) {
  const std::vector<Key> keys = {"a", "b", "c"};
  std::vector<std::vector<Tensor>> values, out;
  for (const Key& key : keys) {
    store_->Init(key, HostTensor(DType::kFloat32, {2, 3}));
    values.push_back(MakeList(4, {2, 3}, 2));
    out.push_back(MakeList(4, {2, 3}, 0));
  }
  store_->Push(keys, values);
  store_->Pull(keys, out);
  for (const auto& list : out) ExpectAll(list, 8);
  out.pop_back();
  ExpectError<Error>("Error: 3 keys were pulled into 2 lists of outputs", [&] { store_->Pull(keys, out); });
  ExpectError<Error>("Error: 3 keys were pushed with 2 lists of values", [&] { store_->Push(keys, out); });
}

TEST_P(KVStoreTest, UpdaterInTheStore) {
  store_->Init("w", HostTensor(DType::kFloat32, {5, 7}));
  store_->SetUpdater(AddTo());
  const auto ones = MakeList(4, {5, 7}, 1), out = MakeList(4, {5, 7}, 0);
  for (int i = 0; i < 4; ++i) store_->Push("w", ones);
  store_->Pull("w", out);
  ExpectAll(out, 16);
  store_->PushPull("w", MakeList(1, {5, 7}, 3), out);
  ExpectAll(out, 19);
  store_->SetUpdater(nullptr);
  store_->PushPull("w", ones, out);
  ExpectAll(out, 4);
}

TEST_P(KVStoreTest, UpdaterGetsTheWholeValueInOneCall) {
  struct Call {
    Key key;
    DType dtype;
    int64_t elements;
    bool operator==(const Call&) const = default;
  };
  auto calls = std::make_shared<std::vector<Call>>();
  store_->Init("w", Make(1, {100, 1000}, 0));
  store_->SetUpdater([calls](const Key& key, DType dtype, const void*, void*, int64_t elements) {
    calls->push_back({key, dtype, elements});
  });
  store_->Push("w", MakeList(1, {100, 1000}, 1));
  store_->Push("w", MakeList(3, {100, 1000}, 1));
  engine_->WaitAll();
  EXPECT_EQ(*calls, std::vector<Call>(2, {"w", DType::kFloat32, 100000}));
}

TEST_P(KVStoreTest, PushPullInPlaceIsAnAllReduce) {
  const Shape shape{100, 1000};
  store_->Init("w", HostTensor(DType::kFloat32, shape));
  std::vector<Tensor> values;
  for (int i = 0; i < 4; ++i) values.push_back(Make(i, shape, i + 1));
  store_->PushPull("w", values, values);  // the sum on every device
  ExpectAll(values, 10);
  store_->PushPull("w", values, values);
  ExpectAll(values, 40);
  // Outputs that are the values in another order.
  store_->PushPull("w", values, std::vector<Tensor>{values[3], values[1]});
  ExpectAll({values[1], values[3]}, 160);
  ExpectAll({values[0], values[2]}, 40);
  // One output twice.
  store_->PushPull("w", values, std::vector<Tensor>{values[2], values[2]});
  ExpectAll({values[2]}, 400);
}

TEST_P(KVStoreTest, Broadcast) {
  const auto out = MakeList(3, {6}, 0);
  store_->Broadcast("w", Make(0, {6}, 5), out);
  ExpectAll(out, 5);
  store_->Broadcast("w", Make(0, {6}, 9), out);  // it has a value already
  ExpectAll(out, 5);
}

TEST_P(KVStoreTest, SumsInTheOrderOfTheList) {
  store_->Init("w", HostTensor(DType::kFloat32, {40}));
  // (1e8 + -1e8) + 1 = 1, but 1e8 + (-1e8 + 1) = 0 in float32.
  const std::vector<Tensor> values = {Make(2, {40}, 1e8), Make(0, {40}, -1e8), Make(1, {40}, 1)};
  const std::vector<Tensor> reversed(values.rbegin(), values.rend());
  const auto out = MakeList(1, {40}, -1);
  for (int i = 0; i < 20; ++i) {
    store_->PushPull("w", values, out);
    ExpectAll(out, 1);
    store_->PushPull("w", reversed, out);
    ExpectAll(out, 0);
  }
}

TEST_P(KVStoreTest, EmptyValues) {
  store_->Init("w", HostTensor(DType::kFloat32, {0, 4}));
  const auto out = MakeList(2, {0, 4}, 0);
  store_->PushPull("w", MakeList(3, {0, 4}, 0), out);
  EXPECT_EQ(out[1].ToHost().elements(), 0);
}

// E41: initialised twice, unknown, of another kind, another shape, another type.
TEST_P(KVStoreTest, Errors) {
  store_->Init("fc1_weight", HostTensor(DType::kFloat32, {2, 2}));
  const auto fits = MakeList(2, {2, 2}, 0);
  ExpectError<Error>("Error: key \"fc1_weight\" is initialised already", [&] {
    store_->Init("fc1_weight", HostTensor(DType::kFloat32, {2, 2}));
  });
  ExpectError<Error>("Error: key \"fc1_weigth\" is not initialised; did you mean \"fc1_weight\"?",
                     [&] { store_->Pull("fc1_weigth", fits); });
  ExpectError<Error>("Error: key \"zzz\" is not initialised; known: fc1_weight", [&] { store_->Push("zzz", fits); });
  ExpectError<Error>("Error: key 7: this store's keys are strings, not integers",
                     [&] { store_->Init(int64_t{7}, HostTensor()); });
  ExpectError<Error>("Error: key 7: this store's keys are strings, not integers",
                     [&] { store_->Push(int64_t{7}, fits); });
  ExpectError<ShapeError>("ShapeError: key \"fc1_weight\", value 1: expected (2, 2) of float32, got (4) of float32",
                          [&] {
                            store_->Push("fc1_weight", std::vector<Tensor>{fits[0], Make(0, {4}, 0)});
                          });
  ExpectError<ShapeError>("ShapeError: key \"fc1_weight\", output 0: expected (2, 2) of float32, got (2, 2) of float64",
                          [&] {
                            store_->Pull("fc1_weight", std::vector<Tensor>{Make(0, {2, 2}, 0, DType::kFloat64)});
                          });
  ExpectError<Error>("Error: key \"fc1_weight\": the list of values is empty",
                     [&] { store_->Push("fc1_weight", std::vector<Tensor>{}); });
  ExpectError<Error>("Error: key \"fc1_weight\", value 0: the tensor is empty",
                     [&] { store_->Push("fc1_weight", std::vector<Tensor>(1)); });
  const Tensor foreign(MakeInlineEngine(), TestDevice(), DType::kFloat32, {2, 2});
  ExpectError<Error>("Error: key \"fc1_weight\", output 0: the tensor belongs to another engine",
                     [&] { store_->Pull("fc1_weight", std::vector<Tensor>{foreign}); });
  store_->Pull("fc1_weight", fits);  // and nothing is broken
  ExpectAll(fits, 0);
}

TEST_P(KVStoreTest, AFailedValueFailsWhatItReplaces) {
  store_->Init("w", HostTensor::Full(DType::kFloat32, {2000}, 6));
  const auto out = MakeList(2, {2000}, 0);
  store_->Push("w", std::vector<Tensor>{Make(0, {2000}, 1), MakeFailed(1, {2000}, "not finite")});
  store_->Pull("w", out);
  for (int i = 0; i < 2; ++i) {  // each time
    ExpectError<NumericError>("NumericError: operation \"spoil\" failed: not finite", [&] { out[1].ToHost(); });
  }
  store_->Push("w", MakeList(2, {2000}, 1));  // written anew: whole again
  store_->Pull("w", out);
  ExpectAll(out, 2);
}

TEST_P(KVStoreTest, AFailedValueDoesNotUpdate) {
  store_->Init("w", HostTensor::Full(DType::kFloat32, {2000}, 6));
  store_->SetUpdater(AddTo());
  const auto out = MakeList(2, {2000}, 0);
  store_->Push("w", std::vector<Tensor>{Make(0, {2000}, 1), MakeFailed(1, {2000}, "not finite")});
  store_->Push("w", std::vector<Tensor>{MakeFailed(1, {2000}, "not finite")});
  store_->Pull("w", out);
  ExpectAll(out, 6);
  store_->Push("w", MakeList(2, {2000}, 1));
  store_->Pull("w", out);
  ExpectAll(out, 8);
}

TEST_P(KVStoreTest, AnUpdaterThatThrowsFailsTheValue) {
  store_->Init("w", HostTensor::Full(DType::kFloat32, {4}, 6));
  store_->SetUpdater(
      [](const Key& key, DType, const void*, void*, int64_t) { Throw<DataError>("no rule for {}", ToString(key)); });
  const auto out = MakeList(1, {4}, 0);
  store_->Push("w", MakeList(2, {4}, 1));
  store_->Pull("w", out);
  ExpectError<DataError>("DataError: operation \"update key \"w\"\" failed: no rule for \"w\"",
                         [&] { out[0].ToHost(); });
  EXPECT_THROW(engine_->WaitAll(), DataError);
  engine_->Recover();
  store_->SetUpdater(AddTo());
  store_->Push("w", MakeList(2, {4}, 1));
  store_->Pull("w", out);
  ExpectAll(out, 8);
}

// Random programs give what the simplest model gives, bit for bit.
TEST_P(KVStoreTest, RandomProgramsEqualASerialModel) {
  PhiloxStream random(7, "kvstore");
  for (int program = 0; program < 6; ++program) {
    const auto store = KVStore::Create(std::get<0>(GetParam()), engine_);
    const int keys = 1 + static_cast<int>(random.Below(3)), devices = 1 + static_cast<int>(random.Below(4));
    std::vector<int64_t> sizes;
    std::vector<std::vector<float>> model;
    std::vector<std::vector<Tensor>> tensors;  // [key][device]
    std::vector<std::vector<std::vector<float>>> contents;
    for (int64_t k = 0; k < keys; ++k) {
      sizes.push_back(1 + static_cast<int64_t>(random.Below(3000)));
      std::vector<float> value(static_cast<size_t>(sizes.back()));
      for (float& x : value) x = random.Normal();
      store->Init(k, HostTensor::From({sizes.back()}, value));
      model.push_back(value);
      tensors.push_back(MakeList(devices, {sizes.back()}, 0));
      contents.push_back(
          std::vector<std::vector<float>>(static_cast<size_t>(devices), std::vector<float>(value.size())));
    }
    bool adds = false;
    for (int step = 0; step < 60; ++step) {
      const auto k = random.Below(static_cast<uint64_t>(keys));
      const Key key = static_cast<int64_t>(k);
      std::vector<Tensor> some;  // a random choice of devices, in random order
      std::vector<size_t> chosen;
      for (uint64_t n = 1 + random.Below(static_cast<uint64_t>(devices)); chosen.size() < n;) {
        const size_t d = random.Below(static_cast<uint64_t>(devices));
        if (std::find(chosen.begin(), chosen.end(), d) != chosen.end()) continue;
        chosen.push_back(d);
        some.push_back(tensors[k][d]);
      }
      const auto push = [&] {
        std::vector<float> sum = contents[k][chosen[0]];
        for (size_t i = 1; i < chosen.size(); ++i) {
          for (size_t e = 0; e < sum.size(); ++e) sum[e] += contents[k][chosen[i]][e];
        }
        for (size_t e = 0; e < sum.size(); ++e) model[k][e] = adds ? model[k][e] + sum[e] : sum[e];
      };
      const auto pull = [&] {
        for (const size_t d : chosen) contents[k][d] = model[k];
      };
      const int priority = static_cast<int>(random.Below(3)) - 1;
      switch (random.Below(5)) {
        case 0:
          store->Push(key, some, priority);
          push();
          break;
        case 1:
          store->Pull(key, some, priority);
          pull();
          break;
        case 2:
          store->PushPull(key, some, some, priority);
          push();
          pull();
          break;
        case 3:
          for (const size_t d : chosen) {
            for (float& x : contents[k][d]) x = random.Normal();
            tensors[k][d].CopyFrom(HostTensor::From({sizes[k]}, contents[k][d]));
          }
          break;
        case 4:
          adds = !adds;
          store->SetUpdater(adds ? AddTo() : nullptr);
          break;
      }
    }
    for (size_t k = 0; k < model.size(); ++k) {
      for (size_t d = 0; d < contents[k].size(); ++d) {
        ASSERT_EQ(tensors[k][d].ToHost(), HostTensor::From({sizes[k]}, contents[k][d]))
            << program << " " << k << " " << d;
      }
    }
  }
}

TEST(KVStoreTypes, Names) {
  for (const KVStoreType type : kTypes) EXPECT_EQ(ParseKVStoreType(ToString(type)), type);
  try {
    ParseKVStoreType("nccl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Error: unknown type of store \"nccl\"; choices: local, device");
  }
  const auto store = KVStore::Create(KVStoreType::kDevice);
  EXPECT_EQ(store->type(), KVStoreType::kDevice);
  EXPECT_EQ(store->rank(), 0);
  EXPECT_EQ(store->size(), 1);
  store->Barrier();
}

}  // namespace
}  // namespace bindery
