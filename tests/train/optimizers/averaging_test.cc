// Averages of weights: their formulas against PyTorch's, on all devices, in checkpoints, and in use.
#include "train/optimizers/averaging.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "engine/kernels/update_loop.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/test_folder.h"
#include "tests/train/fit_until.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

// Ten weights, one after the other: PyTorch 2.15's AveragedModel, by get_ema_multi_avg_fn(0.9) and by the mean of every
// second from the third on.
TEST(Averaging, IsPyTorchs) {
  const std::pair<const char*, std::array<double, 2>> published[] = {
      {"ema(0.9)", {0.32049674053305571, 0.071312377644946856}},
      {"swa(3, 2)", {-0.087181027202665462, -0.12197286422074713}}};
  for (const auto& [text, expected] : published) {
    const Averaging average = *ParseAveraging(text);
    std::array<double, 2> mean = {};
    void* const states[] = {mean.data()};
    for (int step = 1; step <= 10; ++step) {
      std::array<double, 2> weight = {std::sin(1.7 * step), std::sin(1 + 1.7 * step)}, before = weight;
      const void* const none[] = {weight.data()};
      average.kernel(DType::kFloat64, {.step = step, .settings = average.settings},
                     {.gradients = none,
                      .weight = weight.data(),
                      .new_weight = weight.data(),
                      .states = states,
                      .new_states = states,
                      .elements = 2});
      EXPECT_EQ(weight, before);
      if (step < 3) {
        EXPECT_EQ(mean == weight, step == 1 || text[0] == 's');
      }
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(mean[i], expected[i], 1e-15) << text;
  }
}

TEST(Averaging, ReadsWhatItPrints) {
  for (const char* text : {"ema(decay=0.99)", "swa(start=10, every=3)"}) EXPECT_EQ(ParseAveraging(text)->text, text);
  EXPECT_EQ(ParseAveraging("swa(7)")->text, "swa(start=7, every=1)");
  EXPECT_FALSE(ParseAveraging("").has_value());
  const auto message = [](const char* text) { return MessageOf<Error>([&] { ParseAveraging(text); }); };
  EXPECT_EQ(message("ema(1)"), "Error: average \"ema(1)\": decay must be in [0, 1)");
  EXPECT_EQ(message("swa"), "Error: average \"swa\": \"start\" is missing");
  EXPECT_EQ(message("swa(0)"), "Error: average \"swa(0)\": start and every must be >= 1");
  EXPECT_EQ(message("mean"), "Error: unknown average \"mean\"; known: ema, swa");
}

ArrayIter Digits(bool shuffle = true) {
  ImageSet set = DrawDigits(50, 1);
  return ArrayIter(std::move(set.images), std::move(set.labels), {.batch_size = 16, .shuffle = shuffle, .seed = 3});
}

TrainerOptions OptionsOf(const std::string& average, bool use = false) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .optimizer = "sgd(lr=0.1, momentum=0.9)",
          .average = average,
          .use_average = use,
          .threads_per_device = 1};
}

TEST(TrainerAverage, IsOfTheWeightsAfterEachStep) {
  for (const char* text : {"ema(0.5)", "swa(3, 2)"}) {
    ArrayIter data = Digits();
    Trainer trainer(ModelByName("mlp"), OptionsOf(text));
    HostTensorMap expected;
    int64_t averaged = 0;
    trainer.Fit(data, {.epochs = 2, .on_batch = [&](const BatchReport& report) {
                         const bool ema = text[0] == 'e';
                         const double t = static_cast<double>(report.step);
                         double part = ema ? (t == 1 ? 1 : 0.5) : 1;
                         if (!ema && report.step > 3)
                           part = report.step % 2 == 1 ? 1 / static_cast<double>(averaged + 1) : 0;
                         averaged += report.step >= 3 && report.step % 2 == 1;
                         for (auto& [name, value] : trainer.ToModel().params) {
                           const auto [mean, is_new] = expected.try_emplace(name, DType::kFloat64, value.shape());
                           for (int64_t i = 0; i < value.elements(); ++i) {
                             mean->second.Set(i, (1 - part) * mean->second.At(i) + part * value.At(i));
                           }
                         }
                       }});
    EXPECT_EQ(trainer.updater()->step(), 8);
    const HostTensorMap averages = trainer.updater()->Averages(), model = trainer.ToAveragedModel().params;
    EXPECT_EQ(averages.size(), expected.size());
    for (const auto& [name, mean] : expected) {
      EXPECT_LT(MaxAbsDiff(averages.at(name).Cast(DType::kFloat64), mean), 1e-6) << text << " " << name;
      EXPECT_EQ(model.at(name), averages.at(name));
    }
  }
}

// A rule with as many states as one may have: each of them is the number of steps.
struct ManyStates {
  static constexpr int kStates = kMaxUpdateStates;
  static UpdateNumbers Prepare(const UpdateArgs& a) { return {a.learning_rate}; }
  template <class T>
  [[gnu::always_inline]] static void Step(const T* c, T g, T& w, T* s) {
    for (int k = 0; k < kStates; ++k) s[k] += 1;
    w -= c[0] * g;
  }
};

TEST(TrainerAverage, IsBesideAsManyStatesAsARuleMayHave) {
  UpdateRule rule{.name = "many_states", .kernel = UpdateKernelOf<ManyStates>};
  for (int k = 0; k < kMaxUpdateStates; ++k) rule.states.push_back("s" + std::to_string(k));
  AddOptimizer(rule);
  ArrayIter data = Digits();
  TrainerOptions options = OptionsOf("ema(0)");
  options.optimizer = "many_states(lr=0.1)";
  Trainer trainer(ModelByName("mlp"), options);
  trainer.Fit(data, {.epochs = 1});
  for (const auto& [name, value] : trainer.updater()->State()) {
    if (name.ends_with(":average")) continue;
    EXPECT_EQ(value, HostTensor::Full(value.dtype(), value.shape(), 4)) << name;
  }
  EXPECT_EQ(trainer.ToAveragedModel().params, trainer.ToModel().params);
}

TEST(TrainerAverage, DoesNotChangeTheTraining) {
  const auto train = [](const TrainerOptions& options) {
    ArrayIter data = Digits(), test = Digits();
    Trainer trainer(ModelByName("mlp"), options);
    trainer.Fit(data, {.epochs = 2, .validation = &test});
    return trainer.ToModel().params;
  };
  EXPECT_EQ(train(OptionsOf("ema(0.9)", true)), train(OptionsOf("")));
}

TEST(TrainerAverage, ScoresAndSavesItOnRequest) {
  ArrayIter data = Digits(/*shuffle=*/false);  // predictions come in the order of the batches
  Trainer trainer(ModelByName("mlp"), OptionsOf("ema(0.9)", true));
  EXPECT_NO_THROW(trainer.Score(data));  // before any step, as it is
  trainer.Fit(data, {.epochs = 1});
  Trainer averaged(trainer.ToAveragedModel(), {.devices = {TestDevice(0)}});
  EXPECT_LT(MaxAbsDiff(trainer.Predict(data)[0], averaged.Predict(data)[0]), 1e-5);
  Trainer trained(trainer.ToModel(), {.devices = {TestDevice(0)}});
  EXPECT_GT(MaxAbsDiff(trainer.Predict(data)[0], trained.Predict(data)[0]), 1e-4);
  const std::string path = testing::TempDir() + "/averaged.pb";
  trainer.Save(path);
  EXPECT_EQ(LoadModel(path).params, trainer.ToAveragedModel().params);
  EXPECT_EQ(MessageOf<Error>([] { Trainer(ModelByName("mlp"), {.use_average = true}); }),
            "Error: use_average needs an average, e.g. ema(0.999)");
}

TEST(TrainerAverage, ResumedItEndsInTheSameBits) {
  ArrayIter all = Digits();
  Trainer whole(ModelByName("mlp"), OptionsOf("swa(3, 2)"));
  whole.Fit(all, {.epochs = 3});
  const TestFolder made;
  const std::string& folder = made.path();
  ArrayIter data = Digits(), again = Digits();
  Trainer first(ModelByName("mlp"), OptionsOf("swa(3, 2)")), second(ModelByName("mlp"), OptionsOf("swa(3, 2)"));
  FitUntil(6, &first, data, {.epochs = 3, .checkpoints = folder});
  second.Fit(again, {.epochs = 3, .checkpoints = folder, .resume = true});
  EXPECT_EQ(second.ToAveragedModel().params, whole.ToAveragedModel().params);
  Trainer without(ModelByName("mlp"), OptionsOf(""));
  EXPECT_THROW(without.Fit(again, {.epochs = 4, .checkpoints = folder, .resume = true}), CheckpointError);
}

// Before anything is bound for training again.
TEST(TrainerAverage, IsInUseAfterARestore) {
  ArrayIter data = Digits(/*shuffle=*/false);
  Trainer trainer(ModelByName("mlp"), OptionsOf("ema(0.9)", true));
  trainer.Fit(data, {.epochs = 1});
  const NamedValues expected = trainer.Score(data);
  const Model averages = trainer.ToAveragedModel();
  const Checkpoint checkpoint = trainer.ToCheckpoint(&data);
  for (const bool is_bound : {false, true}) {
    ArrayIter again = Digits(/*shuffle=*/false);
    Trainer restored(ModelByName("mlp"), OptionsOf("ema(0.9)", true));
    if (is_bound) restored.Score(again);
    restored.Restore(checkpoint, &again);
    EXPECT_EQ(restored.Score(again), expected) << is_bound;
    EXPECT_EQ(restored.ToAveragedModel().params, averages.params);
    EXPECT_EQ(restored.ToModel().params, checkpoint.model.params);  // they were in place while it scored
  }
}

}  // namespace
}  // namespace bindery
