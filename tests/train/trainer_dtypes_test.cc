// Types of parameters in a training: what is trained, saved, and gone on with.
#include <gtest/gtest.h>

#include <cmath>

#include "symbol/ops.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

// Class numbers, looked up in a table of any type, then float32.
Symbol Net() {
  const Symbol found = Embedding(Variable("data"), {}, {.input_dim = 9, .output_dim = 8}, "embed");
  return SoftmaxOutput(FullyConnected(Cast(found, {.dtype = DType::kFloat32}), {.num_hidden = 3}, "fc"), {}, "softmax");
}

ArrayIter Data() {
  HostTensor data(DType::kFloat32, {24}), labels(DType::kFloat32, {24});
  for (int64_t i = 0; i < 24; ++i) {
    data.Set(i, static_cast<double>(i * i % 9));
    labels.Set(i, static_cast<double>(i % 3));
  }
  return ArrayIter(data, labels, {.batch_size = 8, .shuffle = true, .seed = 5});
}

TrainerOptions Options(ParamDTypes dtypes, std::vector<std::string> fixed = {}) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .optimizer = "adam(lr=0.01)",
          .fixed_params = std::move(fixed),
          .param_dtypes = std::move(dtypes),
          .seed = 3,
          .threads_per_device = 1};
}

TEST(TrainerDTypes, AreTrainedSavedAndGoneOnWith) {
  const TrainerOptions options = Options({{"embed_*", DType::kFloat64}});
  ArrayIter data = Data();
  Trainer whole(Net(), options);
  whole.Fit(data, {.epochs = 4});
  const Model expected = whole.ToModel();
  EXPECT_EQ(expected.params.at("embed_weight").dtype(), DType::kFloat64);
  EXPECT_EQ(expected.params.at("fc_weight").dtype(), DType::kFloat32);

  ArrayIter first = Data(), second = Data();
  Trainer begun(Net(), options), resumed(Net(), options);
  begun.Fit(first, {.epochs = 2});
  const Checkpoint checkpoint = begun.ToCheckpoint(&first);
  EXPECT_EQ(checkpoint.model.params.at("embed_weight").dtype(), DType::kFloat64);
  resumed.Restore(checkpoint, &second);
  resumed.Fit(second, {.epochs = 4});
  EXPECT_EQ(resumed.ToModel().params, expected.params);  // to the bit

  // Float32 has other bits, but learns the same.
  ArrayIter again = Data();
  Trainer single(Net(), Options({}));
  single.Fit(again, {.epochs = 4});
  const HostTensor& table = expected.params.at("embed_weight");
  EXPECT_LT(MaxAbsDiff(single.ToModel().params.at("embed_weight"), table), 1e-4);
  EXPECT_NE(single.ToModel().params.at("embed_weight").Cast(DType::kFloat64), table);
}

TEST(TrainerDTypes, AFixedTableMayHaveSixteenBits) {
  ArrayIter data = Data();
  Trainer trainer(Net(), Options({{"embed_weight", DType::kBFloat16}}, {"embed_weight"}));
  trainer.Prepare(data);
  const HostTensor before = trainer.ToModel().params.at("embed_weight");
  EXPECT_EQ(before.dtype(), DType::kBFloat16);
  trainer.Fit(data, {.epochs = 2});
  EXPECT_EQ(trainer.ToModel().params.at("embed_weight"), before);
}

// Without a state that has the parameter's type; with one it cannot be gone on.
TEST(TrainerDTypes, OthersThanTheCheckpointsAreLogged) {
  ArrayIter data = Data();
  const auto options = [](ParamDTypes dtypes) {
    TrainerOptions plain = Options(std::move(dtypes));
    plain.optimizer = "sgd(lr=0.01)";
    return plain;
  };
  Trainer trainer(Net(), options({{"embed_*", DType::kFloat64}}));
  trainer.Fit(data, {.epochs = 1});
  const Checkpoint checkpoint = trainer.ToCheckpoint(&data);
  const LogLines log;
  Trainer other(Net(), options({}));
  other.Restore(checkpoint, &data);
  EXPECT_NE(log.text().find("was trained with parameter types \"embed_*=float64\""), std::string::npos) << log.text();
  other.Fit(data, {.epochs = 2});
  EXPECT_EQ(other.ToModel().params.at("embed_weight").dtype(), DType::kFloat32);

  ArrayIter same = Data();
  Trainer with_state(Net(), Options({{"embed_*", DType::kFloat64}}));
  with_state.Fit(same, {.epochs = 1});
  const Checkpoint of_float64 = with_state.ToCheckpoint(&same);
  const std::string message = MessageOf<CheckpointError>([&] {
    Trainer trained(Net(), Options({}));
    trained.Restore(of_float64, &same);
    trained.Fit(same, {.epochs = 2});
  });
  EXPECT_NE(message.find("\"embed_weight:mean\": expected float32 (9, 8), got float64 (9, 8)"), std::string::npos)
      << message;
}

// As of token models from elsewhere, whose input is int64.
TEST(TrainerDTypes, DataAreCastToWhatTheModelDeclares) {
  const auto net = [](std::optional<DType> dtype) {
    return Net().Compose({{"data", Variable("data", {.dtype = dtype})}});
  };
  ArrayIter data = Data();
  Trainer expected(net(std::nullopt), Options({}));
  expected.Fit(data, {.epochs = 2});
  for (const char* precision : {"float32", "bfloat16"}) {
    ArrayIter floats = Data();
    TrainerOptions options = Options({});
    options.precision = precision;
    Trainer trainer(net(DType::kInt64), options);
    trainer.Fit(floats, {.epochs = 2});
    EXPECT_EQ(trainer.Predict(floats)[0].shape(), (Shape{24, 3}));
    if (options.precision == "float32") EXPECT_EQ(trainer.ToModel().params, expected.ToModel().params);
  }
  Trainer only_predicts(net(DType::kInt64), Options({}));
  EXPECT_EQ(only_predicts.Predict(data)[0].shape(), (Shape{24, 3}));
  const ExecutorGroup* const group = only_predicts.group();
  only_predicts.Predict(data);
  EXPECT_EQ(only_predicts.group(), group) << "it was bound again";
  ArrayIter broken(HostTensor::Full(DType::kFloat32, {8}, 1.5), HostTensor(DType::kFloat32, {8}), {.batch_size = 8});
  Trainer trainer(net(DType::kInt64), Options({}));
  EXPECT_NE(MessageOf<DataError>([&] { trainer.Fit(broken, {}); }).find("\"data\": expected values of int64, got 1.5"),
            std::string::npos);
}

TEST(TrainerDTypes, WhatCannotBeIsAnError) {
  const auto fit = [](const TrainerOptions& options) {
    return MessageOf([&] {
      ArrayIter data = Data();
      Trainer(Net(), options).Fit(data, {});
    });
  };
  EXPECT_NE(fit(Options({{"embed_wieght", DType::kFloat64}})).find("did you mean \"embed_weight\"?"),
            std::string::npos);
  EXPECT_NE(fit(Options({{"embed_weight", DType::kFloat16}})).find("embed_weight"), std::string::npos);  // is trained
}

}  // namespace
}  // namespace bindery
