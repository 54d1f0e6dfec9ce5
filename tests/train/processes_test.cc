// A run of several processes, as threads: it is the run of one process with as many devices, whatever they hold.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "tests/test_folder.h"
#include "tests/train/process_training.h"

namespace bindery {
namespace {

TEST(TrainerProcesses, TrainAsOneProcessWithAsManyDevices) {
  for (const int count : {2, 3}) ExpectSameAsOneProcess(count, Net(), {}, 1e-5);
}

// Heads that divide by their batch: an uneven last batch (10 of 46 samples on 3 processes) weighs by its samples.
TEST(TrainerProcesses, MeansWeighByTheirSamples) {
  ExpectSameAsOneProcess(3, Net({.normalization = Normalization::kBatch}), {}, 1e-5);
}

TEST(TrainerProcesses, WhoeverDividesDividesOnce) {
  ExpectSameAsOneProcess(2, Net({.normalization = Normalization::kValid}), {}, 1e-5);
  for (const Normalization normalization : {Normalization::kNull, Normalization::kBatch}) {
    ExpectSameAsOneProcess(3, Net({.normalization = normalization}), {.optimizer = "sgd(lr=0.01, rescale=0.5)"}, 1e-5);
  }
}

TEST(TrainerProcesses, MicroBatchesAndLossScales) {
  ExpectSameAsOneProcess(2, Net(), {.average = "ema(0.9)", .micro_batches = 2}, 1e-5);
  ExpectSameAsOneProcess(2, Net(), {.precision = "float16", .loss_scale = "dynamic(start=16777216)"},
                         1e-4);  // which overflows at first
}

// Random numbers go by the place of a sample in the whole batch.
TEST(TrainerProcesses, DropoutDrawsAsInOneProcess) {
  Symbol net = Dropout(FullyConnected(Variable("data"), {.num_hidden = 8}, "fc1"), {.p = 0.5}, "drop");
  net = SoftmaxOutput(FullyConnected(net, {.num_hidden = 2}, "fc2"), {}, "softmax");
  ExpectSameAsOneProcess(2, net, {}, 1e-5);
}

TEST(TrainerProcesses, RunningStatisticsAreMeansOverAllAtTheEndOfAnEpoch) {
  Symbol net = BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 8}, "fc1"), {}, "bn");
  net = SoftmaxOutput(FullyConnected(net, {.num_hidden = 2}, "fc2"), {}, "softmax");
  const std::vector<double> means = [&] {
    std::vector<double> own(2);
    ExpectProcesses(2, [&](const ProcessesPtr& processes) {
      Trainer trainer(net, Of(processes, Options(Cpus(1))));
      const std::unique_ptr<DataIter> part = PartOfData(processes);
      double before = 0;
      // Within the epoch each has its own.
      trainer.Fit(*part, {.epochs = 1, .on_batch = [&](const BatchReport&) {
                            before = trainer.ToModel().aux.at("bn_running_mean").At(0);
                          }});
      const double after = trainer.ToModel().aux.at("bn_running_mean").At(0);
      const std::vector<std::string> all = processes->AllGather(std::to_string(before));
      EXPECT_NE(all[0], all[1]);
      EXPECT_NEAR(after, (std::stod(all[0]) + std::stod(all[1])) / 2, 1e-5);
      own[static_cast<size_t>(processes->rank())] = after;
    });
    return own;
  }();
  EXPECT_EQ(means[0], means[1]);
}

TEST(TrainerProcesses, TheFirstOneWritesCheckpointsAndAllGoOnFromThem) {
  const TestFolder folder;
  const std::string path = folder.path() + "/run";
  Model whole;
  {
    Trainer trainer(Net(), Options(Cpus(2)));
    const std::unique_ptr<DataIter> data = Data();
    trainer.Fit(*data, {.epochs = 4});
    whole = trainer.ToModel();
  }
  ExpectProcesses(2, [&](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1))));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    const FitResult result = trainer.Fit(*part, {.epochs = 2, .checkpoints = path});
    EXPECT_EQ(result.checkpoint.empty(), processes->rank() != 0);
  });
  EXPECT_EQ(CheckpointStore(path).List().size(), 2u);
  // With the folder of the first one alone, in the middle of an epoch, and by another number of processes.
  ExpectProcesses(3, [&](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1))));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    const std::string own = processes->rank() == 0 ? path : folder.path() + "/not there";
    trainer.Fit(*part, {.epochs = 3, .epoch_batches = 0, .checkpoints = own, .checkpoint_every = 3, .resume = true});
    EXPECT_EQ(trainer.updater()->step(), 12);
  });
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/not there"));
  Trainer trainer(Net(), Options(Cpus(1)));
  const std::unique_ptr<DataIter> data = Data();
  trainer.Fit(*data, {.epochs = 4, .checkpoints = path, .resume = true});
  EXPECT_LE(MostDifferent(trainer.ToModel().params, whole.params), 1e-5);
}

// Within an epoch, too. Its metrics are of all that is trained on after the stop, and of what the first had before.
TEST(TrainerProcesses, GoOnWithinAnEpoch) {
  const ArrayIterOptions small{.batch_size = 4, .shuffle = true, .seed = 3};
  for (const char* optimizer : {"sgd", "sgd(lr=0)"}) {
    const TestFolder folder;
    Trainer one(Net(), Options(Cpus(2), {.optimizer = optimizer}));
    const std::unique_ptr<DataIter> data = Data(small), in_order = Data({.batch_size = kSamples});
    one.Fit(*data, {.epochs = 1});
    int64_t stopped_at = 0;
    double accuracy = 0;
    for (const bool resume : {false, true}) {
      ExpectProcesses(2, [&](const ProcessesPtr& processes) {
        Trainer trainer(Net(), Of(processes, Options(Cpus(1), {.optimizer = optimizer})));
        const std::unique_ptr<DataIter> part = PartOfData(processes, small);
        FitOptions options{.epochs = 1, .checkpoints = folder.path(), .checkpoint_every = 1, .resume = resume};
        options.on_batch = [&](const BatchReport& report) {
          if (!resume && report.step == 3) trainer.RequestStop();
        };
        const FitResult result = trainer.Fit(*part, options);
        EXPECT_EQ(result.stopped, !resume);
        if (!resume) {
          if (processes->rank() == 0) stopped_at = result.steps;
          return;
        }
        EXPECT_LE(MostDifferent(trainer.ToModel().params, one.ToModel().params), 1e-5);
        if (processes->rank() == 0) accuracy = result.train[0].second;
      });
    }
    EXPECT_LT(stopped_at, 12);
    if (std::string(optimizer) == "sgd") continue;
    // What the network says does not change: count what it says of those samples.
    const HostTensor scores = one.Predict(*in_order)[0];
    const BatchPtr all = in_order->Next();
    PartIter first(Data(small), 0, 2), second(Data(small), 1, 2);
    double right = 0, counted = 0;
    for (int64_t step = 1; step <= 12; ++step) {
      for (PartIter* part : {&first, &second}) {
        const BatchPtr batch = part->Next();
        if (part == &second && step <= stopped_at) continue;
        for (int64_t i = 0; i < batch->samples; ++i) {
          const int64_t row = batch->index[static_cast<size_t>(i)];
          right += (scores.At(2 * row + 1) > scores.At(2 * row)) == (all->label[0].At(row) == 1);
          ++counted;
        }
      }
    }
    EXPECT_NEAR(accuracy, right / counted, 1e-6);
  }
}

// One is asked; all end before the same step, and go on together. The first one may have waited for its last step, for a
// checkpoint.
TEST(TrainerProcesses, StopTogether) {
  const TestFolder folder;
  std::atomic<int64_t> stopped_at[2];
  ExpectProcesses(2, [&](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1))));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    FitOptions options{
        .epochs = 100, .checkpoints = folder.path(), .checkpoint_every = 1, .on_batch = [&](const BatchReport& report) {
          if (processes->rank() == 1 && report.step == 9) trainer.RequestStop();
        }};
    const FitResult result = trainer.Fit(*part, options);
    EXPECT_TRUE(result.stopped);
    EXPECT_GE(result.steps, 10);
    EXPECT_LE(result.steps, 13);
    stopped_at[processes->rank()] = result.steps;
    options = {.epochs = 5};
    EXPECT_FALSE(trainer.Fit(*part, options).stopped);
    EXPECT_EQ(trainer.updater()->step(), 20);
  });
  EXPECT_EQ(stopped_at[0], stopped_at[1]);
}

TEST(TrainerProcesses, ABadSampleOfOneFailsTheStepOfAll) {
  const std::vector<std::string> errors = RunProcesses(2, [](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1))));
    HostTensor data = Drawn({12, 6}, 1), labels(DType::kFloat32, {12});
    data.Set(6 * 7, std::numeric_limits<double>::quiet_NaN());  // of the second process's part
    PartIter part(std::make_unique<ArrayIter>(data, labels, ArrayIterOptions{.batch_size = 12}), processes->rank(), 2);
    HostTensorMap before;
    FitOptions options{.epochs = 3};
    try {
      trainer.Fit(part, options);
    } catch (const Error&) {
      EXPECT_EQ(trainer.ToModel().params.at("fc1_bias").At(0), 0);  // no step was committed
      throw;
    }
  });
  EXPECT_NE(errors[0].find("process 1 of 2 failed at this step"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("nor is its input \"data\" (element 6 is nan, of sample 1 of the batch, row 7 of the data)"),
            std::string::npos)
      << errors[1];
}

// An iterator that fails on one process ends the run of all, with its reason.
TEST(TrainerProcesses, WhatOneThrowsEndsAll) {
  HostTensorMap params[2];
  const std::vector<std::string> errors = RunProcesses(3, [&](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1))));
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    try {
      trainer.Fit(*part, {.epochs = 50, .on_batch = [&](const BatchReport& report) {
                            if (processes->rank() == 2 && report.step == 6) Throw<DataError>("the disk is gone");
                          }});
    } catch (const Error&) {
      if (processes->rank() < 2) params[processes->rank()] = trainer.ToModel().params;
      throw;
    }
  });
  EXPECT_EQ(MostDifferent(params[0], params[1]), 0);  // nobody has half of a step
  EXPECT_EQ(errors[2], "DataError: the disk is gone");
  for (int rank : {0, 1}) {
    EXPECT_NE(errors[static_cast<size_t>(rank)].find("process 2 of 3 has stopped: the disk is gone"), std::string::npos)
        << errors[static_cast<size_t>(rank)];
  }
}

TEST(TrainerProcesses, WhatDiffersIsAnError) {
  const auto error_of = [](const std::function<void(int rank, TrainerOptions*)>& change) {
    return RunProcesses(2, [&](const ProcessesPtr& processes) {
      TrainerOptions options = Of(processes, Options(Cpus(1)));
      change(processes->rank(), &options);
      Trainer trainer(Net(), options);
      const std::unique_ptr<DataIter> part = PartOfData(processes);
      trainer.Fit(*part, {});
    })[1];
  };
  EXPECT_EQ(error_of([](int rank, TrainerOptions* options) { options->seed = static_cast<uint64_t>(rank); }),
            "Error: the processes do not train the same: process 0 has seed 0, process 1 has seed 1");
  EXPECT_EQ(error_of([](int rank, TrainerOptions* options) {
              if (rank == 1) options->schedule = "cosine(max=9)";
            }),
            "Error: the processes do not train the same: process 0 has schedule constant, process 1 has schedule "
            "cosine(max=9)");
  EXPECT_EQ(error_of([](int, TrainerOptions* options) { options->reproducible_block = 4; }),
            "Error: reproducible blocks are of one process: their bits would depend on the others");
  EXPECT_EQ(
      error_of([](int, TrainerOptions* options) { options->tuning = Tuning::kMeasured; }),
      "Error: tuning measured chooses kernels by what one process measures, and others would choose others: it is "
      "for one process");
  EXPECT_EQ(error_of([](int, TrainerOptions* options) { options->fixed_params = {"*"}; }),
            "Error: all parameters of the network are fixed: there is nothing that processes could train together");
  const std::vector<std::string> orders = RunProcesses(2, [&](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1))));
    const uint64_t seed = static_cast<uint64_t>(processes->rank());
    const std::unique_ptr<DataIter> part = PartOfData(processes, {.batch_size = 12, .shuffle = true, .seed = seed});
    trainer.Fit(*part, {});
  });
  EXPECT_EQ(orders[0],
            "Error: the processes do not train on parts of the same data: process 0 has seed 0, process 1 has seed 1");
  const std::vector<std::string> errors = RunProcesses(2, [&](const ProcessesPtr& processes) {
    Trainer trainer(Net(), Of(processes, Options(Cpus(1))));
    const std::unique_ptr<DataIter> data = Data();
    trainer.Fit(*data, {});
  });
  EXPECT_EQ(errors[0],
            "DataError: 2 processes train together, but their data come in 1 part: each needs a part of its own "
            "(SampleIterOptions::part, or a PartIter around another iterator)");
}

// Kernels of other kinds may have their weights in other orders: summed, these would be nonsense.
TEST(TrainerProcesses, OtherLayoutsAreAnError) {
  const Symbol net = SoftmaxOutput(
      FullyConnected(FullyConnected(Variable("data"), {.num_hidden = 64}, "fc1"), {.num_hidden = 64}, "fc2"), {},
      "softmax");
  const std::vector<std::string> errors = RunProcesses(2, [&](const ProcessesPtr& processes) {
    TrainerOptions options = Of(processes, Options(Cpus(1)));
    if (processes->rank() == 1) options.policy = KernelPolicy::kReference;
    Trainer trainer(net, options);
    const std::unique_ptr<DataIter> part = PartOfData(processes);
    trainer.Fit(*part, {});
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(error.starts_with("Error: the processes do not store parameters alike")) << error;
  }
}

}  // namespace
}  // namespace bindery
