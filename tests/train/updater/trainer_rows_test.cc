// Trainers of nets with tables whose gradients are kept by rows: where they are, and runs that go on from a checkpoint.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/test_device.h"
#include "tests/train/updater/sparse_training.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

ArrayIter Sentences() {
  constexpr int64_t kSamples = 20;
  return ArrayIter({{"data", std::make_shared<HostTensor>(Words(0, {kSamples, kWords}))}},
                   {{"label", std::make_shared<HostTensor>(Label(0, kSamples))}},
                   {.batch_size = 6, .shuffle = true, .seed = 3});
}

TrainerOptions Options(const std::string& optimizer, const std::vector<Device>& devices) {
  return {.devices = devices, .optimizer = optimizer, .metrics = "mse", .threads_per_device = 1};
}

bool ByRows(Trainer* trainer) {
  const ParameterStore& store = trainer->group()->stages()[0]->store();
  return store.Rows(*store.Find("table_weight"), 0) != nullptr;
}

TEST(TrainerRows, WhereAnOptimizerNeedsAllOfATableItsGradientIsWhole) {
  for (const bool averages : {false, true}) {
    for (const char* optimizer : {"adam(lr=0.01)", "lamb(lr=0.01)", "lars(lr=0.01)"}) {
      TrainerOptions options = Options(optimizer, {Cpu(0), Cpu(1)});
      if (averages) options.average = "ema(0.9)";
      Trainer whole(Head(Summed(false)), options), asked(Head(Summed(true)), options);
      for (Trainer* trainer : {&whole, &asked}) {
        ArrayIter data = Sentences();
        trainer->Fit(data, {.epochs = 2});
      }
      const bool by_rows = !averages && std::string(optimizer).starts_with("adam");
      EXPECT_EQ(ByRows(&asked), by_rows) << optimizer;
      EXPECT_EQ(asked.ToModel().params == whole.ToModel().params, !by_rows) << optimizer;
    }
  }
}

TEST(TrainerRows, AResumedRunMovesTheSameBits) {
  const std::string folder = testing::TempDir() + "/trainer_rows_test";
  for (const char* optimizer : {"adam(lr=0.01, wd=0.1)", "sgd(lr=0.1, momentum=0.9)"}) {
    std::filesystem::remove_all(folder);
    const auto fit = [&](Trainer* trainer, const FitOptions& options) {
      ArrayIter data = Sentences();
      trainer->Fit(data, options);
    };
    const TrainerOptions options = Options(optimizer, {Cpu(0), Cpu(1)});
    Trainer through(Head(Summed(true)), options);
    fit(&through, {.epochs = 4});
    Trainer begun(Head(Summed(true)), options);
    fit(&begun, {.epochs = 2, .checkpoints = folder});
    Trainer resumed(Head(Summed(true)), options);
    fit(&resumed, {.epochs = 4, .checkpoints = folder, .resume = true});
    EXPECT_TRUE(ByRows(&resumed));
    EXPECT_NE(begun.ToModel().params, through.ToModel().params);
    EXPECT_EQ(resumed.ToModel().params, through.ToModel().params);
    EXPECT_EQ(resumed.updater()->State(), through.updater()->State());
    // On devices where gradients are whole the states are as good.
    Trainer elsewhere(Head(Summed(true)), Options(optimizer, {Accelerator(0)}));
    fit(&elsewhere, {.epochs = 6, .checkpoints = folder, .resume = true});
    EXPECT_FALSE(ByRows(&elsewhere));
    EXPECT_EQ(elsewhere.updater()->step(), 6 * 4);
  }
}

}  // namespace
}  // namespace bindery
