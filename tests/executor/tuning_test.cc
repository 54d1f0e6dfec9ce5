// Convolutions chosen by what they cost (executor/kernels/cpu/tuning.h), and Winograd's, which are among them where
// they are allowed.
#include "executor/kernels/cpu/tuning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "engine/team.h"
#include "executor/executor.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/winograd.h"
#include "symbol/ops.h"
#include "symbol/ops/fusions.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

// ---- Winograd's ----

ValueType FloatOf(const Shape& shape) { return {.dtype = DType::kFloat32, .shape = shape}; }

std::vector<float> Numbers(int64_t n, int seed) {
  std::vector<float> numbers(static_cast<size_t>(n));
  uint32_t state = 12345u + static_cast<uint32_t>(seed);
  for (float& x : numbers) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return numbers;
}

// Between plain order and a format.
std::vector<float> InFormat(const std::vector<float>& plain, const Shape& shape, const Format& format, bool back) {
  std::vector<float> moved(static_cast<size_t>(back ? shape.Elements() : StorageElements(format, shape)));
  std::array<int64_t, Shape::kMaxRank> index{};
  for (int64_t i = 0; i < shape.Elements(); ++i) {
    int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; rest /= shape[axis--]) {
      index[static_cast<size_t>(axis)] = rest % shape[axis];
    }
    const auto at = static_cast<size_t>(ElementOffset(format, shape, index.data()));
    (back ? moved[static_cast<size_t>(i)] : moved[at]) = back ? plain[at] : plain[static_cast<size_t>(i)];
  }
  return moved;
}

// Output 0 of the kernel, plain, for the same plain inputs each time.
std::vector<float> Run(const Kernel& kernel, const KernelSpec& spec) {
  std::vector<std::vector<float>> values;
  std::vector<void*> inputs;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const Shape& shape = spec.inputs[i].shape;
    values.push_back(InFormat(Numbers(shape.Elements(), static_cast<int>(i)), shape, kernel.input_formats[i], false));
  }
  for (auto& value : values) inputs.push_back(value.data());
  const Shape& shape = spec.outputs[0].shape;
  std::vector<float> y(static_cast<size_t>(StorageElements(kernel.output_formats[0], shape)), -7.0f);
  void* const output = y.data();
  std::vector<float> scratch(static_cast<size_t>(kernel.scratch_bytes) / sizeof(float) + 1, 1e30f);
  const StepBlock step;
  const TeamScope team(kernel.threads);
  kernel.bind({.inputs = inputs, .outputs = {&output, 1}, .scratch = scratch.data(), .step = &step})();
  return InFormat(y, shape, kernel.output_formats[0], true);
}

struct WinogradCase {
  Shape data;
  int64_t filters;
  std::vector<int64_t> pad;
  bool blocked;
  ActivationType activation = ActivationType::kNone;
};
const std::vector<WinogradCase>& WinogradCases() {
  static const std::vector<WinogradCase> kCases = {
      {{2, 16, 8, 8}, 16, {1, 1}, true},   {{1, 16, 5, 7}, 48, {1, 1}, true, ActivationType::kRelu},
      {{3, 48, 13, 3}, 16, {0, 0}, true},  {{2, 32, 1, 1}, 32, {1, 1}, true},
      {{2, 16, 9, 14}, 32, {2, 2}, true},  {{1, 16, 6, 11}, 16, {0, 2}, true, ActivationType::kTanh},
      {{2, 16, 7, 10}, 32, {1, 1}, false}, {{4, 64, 31, 29}, 80, {1, 1}, true},
      {{2, 16, 12, 3}, 16, {5, 4}, true}};
  return kCases;
}

Format BlocksOr(bool blocked) { return blocked ? cpu::ChannelBlocked(4, cpu::SimdBlock()) : Format::ChannelsLast(4); }

KernelSpec Forward(const WinogradCase& c, bool has_bias, bool adds, int threads) {
  const ConvolutionAttrs attrs{
      .num_filter = c.filters, .kernel = {3, 3}, .pad = c.pad, .no_bias = !has_bias, .activation = c.activation};
  const Shape weight = {c.filters, c.data[1], 3, 3};
  const Shape output = {c.data[0], c.filters, c.data[2] + 2 * c.pad[0] - 2, c.data[3] + 2 * c.pad[1] - 2};
  KernelSpec spec{.op = adds ? &ConvolutionAddOp() : &ConvolutionOp(),
                  .attrs = attrs,
                  .inputs = {FloatOf(c.data), FloatOf(weight)},
                  .outputs = {FloatOf(output)},
                  .input_formats = {BlocksOr(c.blocked), Format::Plain()},
                  .input_is_open = {false, true},
                  .output_wishes = {std::nullopt},
                  .output_used = {true},
                  .threads = threads};
  for (const Shape& more : {has_bias ? Shape{c.filters} : Shape(), adds ? output : Shape()}) {
    if (more.rank() == 0) continue;
    spec.inputs.push_back(FloatOf(more));
    spec.input_formats.push_back(Format::Plain());
    spec.input_is_open.push_back(false);
  }
  return spec;
}
KernelSpec GradData(const WinogradCase& c, int threads) {
  KernelSpec spec = Forward(c, false, false, threads);
  spec.op = &ConvolutionGradDataOp();
  ConvolutionGradDataAttrs attrs;
  attrs.kernel = {3, 3};
  attrs.pad = c.pad;
  attrs.num_filter = c.filters;
  attrs.no_bias = true;
  attrs.extents = {c.data[2], c.data[3]};
  spec.attrs = attrs;
  std::swap(spec.inputs[0], spec.outputs[0]);
  spec.input_is_open[1] = false;
  return spec;
}

// The reference's, and the same bits with any number of threads.
template <class Spec, class Make>
void ExpectReference(const Spec& spec_of, const Make& make) {
  const KernelSpec spec = spec_of(1);
  const std::vector<float> expected = Run(MakeKernel(spec, KernelPolicy::kReference), spec);
  float most = 0;
  for (const float y : expected) most = std::max(most, std::abs(y));
  for (const cpu::WinogradTiles tiles : {cpu::WinogradTiles::k2x2, cpu::WinogradTiles::k4x4}) {
    const MaybeKernel kernel = make(spec, tiles);
    ASSERT_TRUE(kernel);
    const std::vector<float> actual = Run(*kernel, spec);
    const float tolerance = (tiles == cpu::WinogradTiles::k2x2 ? 4e-6f : 4e-5f) * std::max(most, 1.0f);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance) << kernel->implementation << " element " << i;
    }
    for (const int threads : {2, 5}) EXPECT_EQ(Run(*make(spec_of(threads), tiles), spec_of(threads)), actual);
  }
}

TEST(Winograd, ConvolvesAsTheReference) {
  for (const WinogradCase& c : WinogradCases()) {
    SCOPED_TRACE(fmt::format("{} {}, {} around", c.data, c.filters, Shape(c.pad)));
    for (const bool has_bias : {false, true}) {
      for (const bool adds : {false, true}) {
        const int addend = adds ? 2 + (has_bias ? 1 : 0) : -1;
        ExpectReference([&](int threads) { return Forward(c, has_bias, adds, threads); },
                        [&](const KernelSpec& spec, cpu::WinogradTiles tiles) {
                          return cpu::WinogradConvolution(spec, addend, tiles);
                        });
      }
    }
  }
}

TEST(Winograd, MakesTheGradientOfDataAsTheReference) {
  for (const WinogradCase& c : WinogradCases()) {
    if (c.activation != ActivationType::kNone) continue;
    SCOPED_TRACE(fmt::format("{} {}, {} around", c.data, c.filters, Shape(c.pad)));
    ExpectReference([&](int threads) { return GradData(c, threads); }, cpu::WinogradConvolutionGradData);
  }
}

TEST(Winograd, DeclinesWhatItCannotDo) {
  const auto makes = [](const ConvolutionAttrs& attrs, int64_t channels, DType dtype = DType::kFloat32) {
    KernelSpec spec = Forward({{2, 16, 8, 8}, 16, {1, 1}, true}, false, false, 1);
    spec.attrs = attrs;
    spec.inputs[0].shape = {2, channels, 8, 8};
    spec.inputs[1].shape = {16, channels / attrs.groups, attrs.kernel[0], attrs.kernel[1]};
    spec.outputs[0].shape = {2, 16, ConvolutionWindows(attrs, spec.inputs[0].shape)[0].output,
                             ConvolutionWindows(attrs, spec.inputs[0].shape)[1].output};
    for (ValueType* value : {&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]}) value->dtype = dtype;
    return cpu::WinogradConvolution(spec, -1, cpu::WinogradTiles::k2x2).has_value();
  };
  const ConvolutionAttrs can{.num_filter = 16, .kernel = {3, 3}, .no_bias = true};
  EXPECT_TRUE(makes(can, 16));
  EXPECT_FALSE(makes(can, 3));
  EXPECT_FALSE(makes(can, 16, DType::kFloat64));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 5}, .no_bias = true}, 16));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 3}, .stride = {2, 1}, .no_bias = true}, 16));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 3}, .dilate = {1, 2}, .no_bias = true}, 16));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 3}, .groups = 2, .no_bias = true}, 32));
}

// ---- choices ----

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
