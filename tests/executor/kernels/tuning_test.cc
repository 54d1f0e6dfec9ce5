// Convolutions chosen by what they cost (executor/kernels/cpu/tuning.h).
#include "executor/kernels/cpu/tuning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/split_text.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"
#include "train/zoo.h"

namespace bindery {
namespace {

class TuningTest : public testing::Test {
 protected:
  TuningTest() {
    std::filesystem::remove_all(folder_);
    cpu::UseTuningFolder(folder_);
  }
  ~TuningTest() override {
    cpu::UseTuningFolder("");
    std::filesystem::remove_all(folder_);
  }
  // How many convolutions are measured when the net is bound, by a process that knows only the file.
  int64_t Measured() const {
    cpu::UseTuningFolder(folder_);
    return MeasuredNow();
  }
  static int64_t MeasuredNow(Tuning tuning = Tuning::kMeasured);

  const std::string folder_ = testing::TempDir() + "tuning";
};

// Forward, gradients of data and weights, a sum, a group.
Symbol Net() {
  const ConvolutionAttrs same{.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}};
  Symbol x = Relu(Convolution(Variable("data"), same, "first"));
  x = Convolution(x, same, "second") + x;
  x = Convolution(x, {.num_filter = 32, .kernel = {3, 3}, .groups = 2}, "grouped");
  return SoftmaxOutput(FullyConnected(Flatten(x), {.num_hidden = 4}, "full"), {}, "softmax");
}

struct Outcome {
  std::vector<HostTensor> values;  // the output, and gradients of weights
  std::vector<std::string> implementations = {};
};
Outcome Step(Tuning tuning) {
  Executor executor(
      Net(),
      {.inputs = {{"data", {4, 16, 10, 10}}, {"softmax_label", {4}}}, .threads = 2, .switches = {.tuning = tuning}});
  HostTensorMap values;
  for (const std::string& name : executor.param_names()) {
    values[name] = Uniform(executor.ArgumentArray(name).shape(), -0.3, 0.3).Cast(DType::kFloat32);
  }
  executor.SetParams(values, {});
  executor.SetInput("data", Uniform({4, 16, 10, 10}).Cast(DType::kFloat32));
  executor.SetInput("softmax_label", Integers({4}, 0, 3).Cast(DType::kFloat32));
  executor.Forward(Mode::kTrain);
  executor.Backward();
  Outcome outcome{.values = {executor.Output(0)}};
  for (const char* name : {"first_weight", "second_weight", "grouped_weight", "second_bias"}) {
    outcome.values.push_back(executor.Gradient(name));
  }
  for (const PlanCall& call : executor.plan().calls) {
    if (call.op.starts_with("Convolution")) outcome.implementations.push_back(call.implementation);
  }
  return outcome;
}

int64_t TuningTest::MeasuredNow(Tuning tuning) {
  const int64_t before = cpu::NumTuningMeasurements();
  Step(tuning);
  return cpu::NumTuningMeasurements() - before;
}

TEST_F(TuningTest, ComputesTheSameButForRounding) {
  const Outcome by_rules = Step(Tuning::kOff);
  for (const Tuning tuning : {Tuning::kMeasured, Tuning::kWinograd}) {
    SCOPED_TRACE(ToString(tuning));
    const Outcome tuned = Step(tuning);
    ASSERT_EQ(tuned.implementations.size(), by_rules.implementations.size());
    ASSERT_GE(tuned.implementations.size(), 8u);
    for (const std::string& implementation : tuned.implementations) {
      EXPECT_TRUE(implementation.ends_with(", tuned")) << implementation;
      EXPECT_TRUE(tuning == Tuning::kWinograd || !implementation.starts_with("winograd")) << implementation;
    }
    for (const std::string& implementation : by_rules.implementations) {
      EXPECT_EQ(implementation.find("tuned"), std::string::npos) << implementation;
    }
    for (size_t i = 0; i < tuned.values.size(); ++i) {
      ExpectNear(tuned.values[i], by_rules.values[i], 2e-4 * std::max(1.0, MaxAbs(by_rules.values[i])), "value");
    }
  }
}

// Is it a line of the file for what Winograd's can do: 3 x 3 windows with stride 1, not of an image?
bool IsForWinograd(std::string_view line) {
  const auto has = [line](std::string_view text) { return line.find(text) != line.npos; };
  return has("kernel=(3, 3)") && !has("stride=(2, 2)") && !has(" (4, 3, ");
}
// Writes into the file that convolutions are computed so, and those that cannot be by the rules' choice.
void ChooseFor(const std::string& op, const std::string& choice) {
  const std::string path = cpu::TuningFile(), text = ReadFile(path);
  std::string body;
  for (const std::string_view line : SplitText(std::string_view(text).substr(text.find('\n') + 1), '\n')) {
    if (line.empty()) continue;
    const bool is_meant = line.starts_with(op + " ");
    const std::string_view key = line.substr(0, line.rfind(" = "));
    body +=
        is_meant ? fmt::format("{} = {}\n", key, IsForWinograd(line) ? choice : "rules") : fmt::format("{}\n", line);
  }
  WriteFileAtomically(
      path, fmt::format("bindery tuning {:016x}\n{}", Checksum(body.data(), static_cast<int64_t>(body.size())), body));
}

// Weights that Winograd's transform once follow their parameters; those of 16 bits are cast in each run.
TEST_F(TuningTest, PredictionsByWinograd) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    ConvolutionAttrs attrs{.num_filter = 32, .kernel = {3, 3}, .pad = {1, 1}};
    Symbol net = Convolution(Cast(Variable("data"), {.dtype = dtype}), attrs, "layer");
    const auto make = [&](Tuning tuning) {
      return std::make_unique<Executor>(net, ExecutorOptions{.inputs = {{"data", {1, 32, 12, 12}}},
                                                             .for_training = false,
                                                             .param_dtypes = {{"layer_*", dtype}},
                                                             .threads = 1,
                                                             .switches = {.tuning = tuning}});
    };
    make(Tuning::kWinograd);
    ChooseFor("Convolution", "winograd 4x4");
    cpu::UseTuningFolder(folder_);
    const auto by_rules = make(Tuning::kOff), tuned = make(Tuning::kWinograd);
    const Plan& plan = tuned->plan();
    const auto call = std::ranges::find(plan.calls, "Convolution", &PlanCall::op);
    ASSERT_NE(call, plan.calls.end());
    EXPECT_TRUE(call->implementation.starts_with("winograd 4x4")) << call->implementation;
    if (dtype == DType::kFloat32) {
      ASSERT_EQ(plan.derive_calls, 1);
      EXPECT_EQ(plan.calls[0].implementation, "winograd 4x4");
    }
    for (const double scale : {0.1, 0.3}) {
      const HostTensorMap values = {{"layer_weight", Uniform({32, 32, 3, 3}, -scale, scale).Cast(dtype)},
                                    {"layer_bias", Uniform({32}, -scale, scale).Cast(dtype)}};
      for (Executor* executor : {by_rules.get(), tuned.get()}) {
        executor->SetParams(values, {});
        executor->SetInput("data", Uniform({1, 32, 12, 12}).Cast(DType::kFloat32));
        executor->Forward(Mode::kPredict);
      }
      const HostTensor expected = by_rules->Output(0);
      const double rounding = dtype == DType::kFloat32 ? 4e-5 : 2e-3;
      ExpectNear(tuned->Output(0), expected, rounding * std::max(1.0, MaxAbs(expected)), "output");
    }
  }
}

// The output of ResNet-20 for small images and, of training, all gradients.
Outcome RunResNet(Tuning tuning, bool trains) {
  const Shape data = {4, 3, 16, 16};
  Executor executor(ModelByName("resnet20", {.input = {3, 16, 16}}),
                    {.inputs = {{"data", data}, {"softmax_label", {4}}},
                     .for_training = trains,
                     .threads = 2,
                     .switches = {.tuning = tuning}});
  HostTensorMap parameters, statistics;
  for (const std::string& name : executor.param_names()) {
    const Shape shape = executor.ArgumentArray(name).shape();
    const double most = shape.rank() > 1 ? std::sqrt(6 / static_cast<double>(shape.CountFrom(1))) : 1;
    parameters[name] = Uniform(shape, shape.rank() > 1 ? -most : 0.5, most).Cast(DType::kFloat32);
  }
  for (const std::string& name : executor.aux_names()) {
    statistics[name] =
        HostTensor::Full(DType::kFloat32, executor.AuxiliaryArray(name).shape(), name.ends_with("var") ? 1 : 0);
  }
  executor.SetParams(parameters, statistics);
  executor.SetInput("data", Uniform(data).Cast(DType::kFloat32));
  executor.SetInput("softmax_label", Integers({4}, 0, 9).Cast(DType::kFloat32));
  executor.Forward(trains ? Mode::kTrain : Mode::kPredict);
  Outcome outcome{.values = {executor.Output(0)}};
  for (const PlanCall& call : executor.plan().calls) {
    if (call.op.starts_with("Convolution")) outcome.implementations.push_back(call.implementation);
  }
  if (!trains) return outcome;
  executor.Backward();
  for (const std::string& name : executor.param_names()) outcome.values.push_back(executor.Gradient(name));
  return outcome;
}

// Of 16 convolutions, and as many gradients of data, each may round as one by itself (winograd_test.cc).
TEST_F(TuningTest, ANetworkByWinogradComputesTheSameButForRounding) {
  for (const bool trains : {false, true}) {
    const Outcome by_rules = RunResNet(Tuning::kOff, trains);
    RunResNet(Tuning::kWinograd, trains);
    for (const auto& [tiles, rounding] : {std::pair{"winograd 2x2", 4e-6}, {"winograd 4x4", 4e-5}}) {
      SCOPED_TRACE(fmt::format("{}{}", tiles, trains ? ", training" : ""));
      Outcome tuned;
      int64_t measured = 1;
      for (int round = 0; round < 5 && measured > 0; ++round) {  // other formats may come up
        for (const char* op : {"Convolution", "ConvolutionAdd", "ConvolutionGradData"}) ChooseFor(op, tiles);
        ChooseFor("ConvolutionGradWeight", "rules");
        cpu::UseTuningFolder(folder_);
        measured = cpu::NumTuningMeasurements();
        tuned = RunResNet(Tuning::kWinograd, trains);
        measured = cpu::NumTuningMeasurements() - measured;
      }
      EXPECT_EQ(measured, 0);
      const int64_t by_tiles = std::ranges::count_if(
          tuned.implementations, [tiles](const std::string& name) { return name.starts_with(tiles); });
      EXPECT_EQ(by_tiles, trains ? 32 : 16);
      ASSERT_EQ(tuned.values.size(), by_rules.values.size());
      for (size_t i = 0; i < tuned.values.size(); ++i) {
        const double tolerance = static_cast<double>(by_tiles) * rounding * MaxAbs(by_rules.values[i]);
        ExpectNear(tuned.values[i], by_rules.values[i], tolerance, fmt::format("value {}", i));
      }
    }
  }
}

TEST_F(TuningTest, AChoiceHoldsForTheProcessAndForLaterOnes) {
  const Outcome first = Step(Tuning::kMeasured);
  EXPECT_EQ(MeasuredNow(), 0);
  EXPECT_EQ(Measured(), 0) << "its file says it";
  const Outcome later = Step(Tuning::kMeasured);
  EXPECT_EQ(later.implementations, first.implementations);
  for (size_t i = 0; i < first.values.size(); ++i) EXPECT_TRUE(later.values[i] == first.values[i]) << i;
  EXPECT_GT(MeasuredNow(Tuning::kWinograd), 0) << "among other candidates it is another choice";
}

TEST_F(TuningTest, DevicesThatAreBoundAtOnceTakeTheSame) {
  const int64_t before = cpu::NumTuningMeasurements();
  std::array<Outcome, 3> outcomes;
  std::vector<std::thread> threads;
  for (Outcome& outcome : outcomes) threads.emplace_back([&outcome] { outcome = Step(Tuning::kMeasured); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(outcomes[1].implementations, outcomes[0].implementations);
  EXPECT_EQ(outcomes[2].implementations, outcomes[0].implementations);
  const int64_t measured = cpu::NumTuningMeasurements() - before;
  cpu::UseTuningFolder("");
  EXPECT_EQ(MeasuredNow(), measured) << "so many are measured once";
}

TEST_F(TuningTest, TheFileIsTextAndMeasuredAnewWhereItIsDamaged) {
  EXPECT_GT(Measured(), 0);
  const std::string path = cpu::TuningFile(), text = ReadFile(path);
  EXPECT_TRUE(text.starts_with("bindery tuning ")) << text;
  EXPECT_NE(text.find("ConvolutionGradWeight "), std::string::npos) << text;
  EXPECT_EQ(Measured(), 0);
  std::string other_choice = text;
  other_choice.replace(other_choice.rfind(" = "), 3, " = g");
  for (const std::string& damaged : {std::string(), text.substr(0, text.size() - 1), text + "\n", other_choice,
                                     "another's" + text, std::string(1 << 16, '\0')}) {
    WriteFileAtomically(path, damaged);
    EXPECT_GT(Measured(), 0) << damaged;
    EXPECT_EQ(Measured(), 0) << "it is whole again";
  }
}

TEST_F(TuningTest, AFolderThatCannotBeUsedIsNoError) {
  const std::string file = testing::TempDir() + "tuning_file";
  WriteFileAtomically(file, "a file");
  cpu::UseTuningFolder(file + "/below");
  EXPECT_GT(MeasuredNow(), 0);
  EXPECT_EQ(MeasuredNow(), 0) << "for this process it holds";
  EXPECT_EQ(ReadFile(file), "a file");
  cpu::UseTuningFolder("");
  EXPECT_EQ(cpu::TuningFile(), "");
  EXPECT_GT(MeasuredNow(), 0);
}

// Others could have put there what they like.
TEST_F(TuningTest, AFolderThatOthersMayWriteToIsLeftAlone) {
  EXPECT_GT(Measured(), 0);
  struct stat about = {};
  ASSERT_EQ(stat(folder_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  for (const mode_t mode : {0770, 0707}) {
    chmod(folder_.c_str(), mode);
    EXPECT_GT(Measured(), 0) << mode;
  }
  chmod(folder_.c_str(), 0700);
  EXPECT_EQ(Measured(), 0);
}

TEST(Tuning, HasNames) {
  for (const Tuning tuning : {Tuning::kOff, Tuning::kMeasured, Tuning::kWinograd}) {
    EXPECT_EQ(ParseTuning(ToString(tuning)), tuning);
  }
  EXPECT_EQ(MessageOf([] { ParseTuning("fast"); }),
            "Error: unknown way to choose kernels \"fast\"; choices: off, measured, winograd");
}

}  // namespace
}  // namespace bindery
