// Traces of trainings on several devices, and the times of their calls.
#include "train/trace/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/train/trace/check_trace.h"
#include "train/data/array_iter.h"
#include "train/trace/call_times.h"
#include "train/trace/trace_steps.h"
#include "train/trainer.h"

namespace bindery {
namespace {

// A network with running statistics over all devices, so that a collective stands between its segments, with dropout,
// and with a name that JSON has to quote.
Symbol Net() {
  Symbol x = Convolution(Variable("data"), {.num_filter = 4, .kernel = {3, 3}}, "conv \"1\"");
  x = Relu(BatchNorm(x, {.sync = true}, "bn"));
  x = Dropout(FullyConnected(Flatten(x), {.num_hidden = 5}, "fc"), {.p = 0.5}, "drop");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "out"), {}, "softmax");
}

constexpr int64_t kSamples = 24, kBatch = 8;

ArrayIter Data() {
  return ArrayIter(Filled({kSamples, 1, 6, 6}, [](int64_t i) { return static_cast<double>(i * 7919 % 101) / 50 - 1; }),
                   ClassesInTurn(kSamples, 3), {.batch_size = kBatch});
}

TrainerOptions Options(std::shared_ptr<Engine> engine) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .optimizer = "sgd(lr=0.1, momentum=0.9)",
          .seed = 3,
          .threads_per_device = 1,
          .engine = std::move(engine)};
}

std::string PathOf(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

TEST(TraceTest, EveryOperatorOfATrainingOnItsDeviceAndTheSameBits) {
  ArrayIter plain_data = Data(), data = Data();
  Trainer plain(Net(), Options(MakeThreadedEngine()));
  plain.Fit(plain_data, {.epochs = 3});

  const auto trace = std::make_shared<Trace>();
  Trainer trainer(Net(), Options(MakeTraceEngine(MakeThreadedEngine(), trace)));
  const std::string path = PathOf("trace.json");
  trainer.Fit(data,
              {.epochs = 3,
               .extensions = {TraceSteps(
                   {.path = path, .trace = trace, .group = [&] { return trainer.group(); }, .skip = 2, .steps = 3})}});
  EXPECT_FALSE(trace->recording());
  const Model traced = trainer.ToModel(), expected = plain.ToModel();
  EXPECT_EQ(traced.params, expected.params);
  EXPECT_EQ(traced.aux, expected.aux);

  std::map<std::string, std::set<std::string>> operators, names;  // by process
  std::map<int, std::string> processes;
  const std::string text = ReadFile(path);
  const nlohmann::json all = nlohmann::json::parse(text);
  for (const nlohmann::json& event : all.at("traceEvents")) {
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
  }
  int steps = 0;
  for (const nlohmann::json& slice : CheckTrace(text)) {
    const std::string process = processes.at(slice.at("pid"));
    steps += slice.at("cat") == "step";
    (slice.at("cat") == "operator" ? operators : names)[process].insert(slice.at("name"));
    if (slice.at("cat") == "operator") {
      EXPECT_NE(slice.at("args").at("kernel"), "");
    }
  }
  EXPECT_EQ(steps, 3);
  EXPECT_TRUE(names.at("host").contains("step 3"));
  EXPECT_TRUE(names.at("host").contains("step 5"));
  for (const int device : {0, 1}) {
    const std::string process = ToString(TestDevice(device));
    for (const PlanCall& call : dynamic_cast<DataParallelExecutorGroup&>(*trainer.group()).plan(device).calls) {
      EXPECT_TRUE(operators.at(process).contains(call.op + " " + call.node)) << call.op << " " << call.node;
    }
    const auto any = [&](const std::string& part) {
      return std::ranges::any_of(names.at(process), [&](const std::string& n) { return n.find(part) != n.npos; });
    };
    EXPECT_TRUE(any("forward " + process)) << process;
    EXPECT_TRUE(any("backward " + process)) << process;
    EXPECT_TRUE(any("load")) << process << ": " << nlohmann::json(names.at(process));
  }
}

TEST(TraceTest, ARunThatEndsBeforeLeavesWhatThereIs) {
  ArrayIter data = Data();
  const auto trace = std::make_shared<Trace>();
  Trainer trainer(Net(), Options(MakeTraceEngine(MakeThreadedEngine(), trace)));
  const auto steps = [&](const std::string& path) {
    return TraceSteps({.path = path, .trace = trace, .group = [&] { return trainer.group(); }, .skip = 0, .steps = 99});
  };
  trainer.Fit(data, {.epochs = 1, .extensions = {steps(PathOf("folder/short.json"))}});
  const auto slices = CheckTrace(ReadFile(PathOf("folder/short.json")));
  EXPECT_EQ(std::ranges::count(slices, "step", [](const auto& s) { return s.at("cat").template get<std::string>(); }),
            3);
  // Shorter than what is skipped: the calls of operators alone, and a warning.
  const LogLines log;
  Trainer another(Net(), Options(MakeTraceEngine(MakeThreadedEngine(), trace)));
  ArrayIter again = Data();
  another.Fit(
      again,
      {.epochs = 1,
       .extensions = {TraceSteps(
           {.path = PathOf("shorter.json"), .trace = trace, .group = [&] { return another.group(); }, .skip = 4})}});
  EXPECT_EQ(std::ranges::count(log.lines(), "the trace has no steps: the run had 3, and the first 4 are not recorded"),
            1);
  const auto calls = CheckTrace(ReadFile(PathOf("shorter.json")));
  EXPECT_TRUE(std::ranges::any_of(calls, [](const auto& slice) { return slice.at("cat") == "operator"; }));
  EXPECT_NE(MessageOf<DataError>([&] {
              trainer.Fit(data, {.epochs = 2, .extensions = {steps("/proc/none/trace.json")}});
            }).find("/proc/none"),
            std::string::npos);
  EXPECT_EQ(trainer.updater()->step(), 3) << "that is told before the first step";
  // A learner that is not bound yet has no group.
  const auto unbound = TraceSteps({.path = PathOf("unbound.json"),
                                   .trace = trace,
                                   .group = [] { return static_cast<ExecutorGroup*>(nullptr); },
                                   .skip = 0});
  trainer.Fit(data, {.epochs = 2, .extensions = {unbound}});
  EXPECT_THROW(TraceSteps({.path = "x", .trace = nullptr}), Error);
  EXPECT_THROW(TraceSteps({.path = "x", .trace = trace, .steps = 0}), Error);
}

TEST(TraceTest, OperationsThatFailAreRecordedToo) {
  const auto trace = std::make_shared<Trace>();
  const std::shared_ptr<Engine> engine = MakeTraceEngine(MakeThreadedEngine(), trace);
  const VarPtr var = engine->NewVar();
  const auto push = [&](const std::string& name, bool fails) {
    engine->Push({.name = name, .device = TestDevice(0), .writes = {var}, .run = [fails](const OpContext&) {
                    if (fails) throw Error("broken");
                  }});
  };
  push("before", false);
  engine->Wait(var);
  trace->Start();
  push("good", false);
  push("bad \"<&>\" \xff", true);
  EXPECT_NE(MessageOf<Error>([&] { engine->Wait(var); }).find("broken"), std::string::npos);
  trace->Stop();
  push("after", false);
  engine->Wait(var);
  const auto slices = CheckTrace(trace->ToJson());
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].at("name"), "good");
  EXPECT_EQ(slices[1].at("name"), "bad \"<&>\" \xef\xbf\xbd");
  EXPECT_STREQ(engine->name(), "threaded");
  EXPECT_TRUE(CheckTrace(Trace().ToJson()).empty());
}

// The work of the calls, by the formulas.
TEST(CallTimes, OperationsAndBytes) {
  DataParallelExecutorGroup group(Net(), {.devices = {TestDevice(0)},
                                          .data = {{"data", {8, 1, 6, 6}}},
                                          .labels = {{"softmax_label", {8}}},
                                          .threads_per_device = 1});
  EXPECT_EQ(group.step().participants().size(), 1u);
  const double conv = 2.0 * 8 * 4 * 4 * 4 * 9, fc = 2.0 * 8 * 64 * 5, out = 2.0 * 8 * 5 * 3;
  std::map<std::string, std::vector<double>> found;
  for (const PlanCall& call : group.plan().calls) {
    const double operations = OperationsOf(group.plan(), call);
    EXPECT_GE(BytesOf(group.plan(), call), 0);
    if (operations > 0) found[call.op].push_back(operations);
  }
  EXPECT_EQ(found["Convolution"], std::vector<double>{conv});
  EXPECT_EQ(found["ConvolutionGradWeight"], std::vector<double>{conv});
  EXPECT_EQ(found["FullyConnected"], (std::vector<double>{fc, out}));
  EXPECT_EQ(found["FullyConnectedGradData"], (std::vector<double>{out, fc}));
  EXPECT_EQ(found["FullyConnectedGradWeight"], (std::vector<double>{out, fc}));
}

// By hand: 3 steps of 2 samples, 4 gates of 5 units; 2 heads of 4, 6 queries and keys of 3 samples.
TEST(CallTimes, OperationsOfRecurrentLayersAndOfAttention) {
  const auto operations_of = [](const Symbol& net, const Shape& data, const std::string& op) {
    DataParallelExecutorGroup group(
        Symbol(net),
        {.devices = {TestDevice(0)}, .data = {{"data", data}}, .inputs_need_grad = true, .threads_per_device = 1});
    double operations = 0;
    for (const PlanCall& call : group.plan().calls) {
      if (call.op == op) operations += OperationsOf(group.plan(), call);
    }
    return operations;
  };
  const RnnResult lstm = Rnn(Variable("data", {.layout = "TNC"}),
                             {.cell = RecurrentCell::kLstm, .hidden = 5, .layout = SequenceLayout::kTnc}, "lstm");
  for (const Symbol& net : {MakeLoss(lstm.output), MakeLoss(lstm.states[0])}) {
    EXPECT_EQ(operations_of(net, {3, 2, 7}, "Recurrent"), 2.0 * 3 * 2 * 20 * 5);
    EXPECT_EQ(operations_of(net, {3, 2, 7}, "RecurrentGrad"), 2.0 * 3 * 2 * 20 * 5);
  }
  const Symbol x = Variable("data"), attention = MakeLoss(Attention(x, x, x, {}, "attention"));
  EXPECT_EQ(operations_of(attention, {3, 2, 6, 4}, "Attention"), 3.0 * 2 * 6 * 4 * 6 * (2 + 2));
  EXPECT_EQ(operations_of(attention, {3, 2, 6, 4}, "AttentionGrad"), 3.0 * 2 * 6 * 4 * 6 * (6 + 4));
}

TEST(CallTimes, OfPredictionAndOfProductsOfMatrices) {
  const Symbol net = MatMul(Variable("data"), Variable("b", {.shape = Shape{3, 5}}), {}, "product");
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0)}, .data = {{"data", {4, 2, 3}}}, .for_training = false, .threads_per_device = 1});
  group.SetParams({{"b", HostTensor::Full(DType::kFloat32, {3, 5}, 1)}}, {});
  group.Forward(Batch{.data = {HostTensor::Full(DType::kFloat32, {4, 2, 3}, 1)}, .samples = 4});
  const std::vector<CallTime> times = RunAgain(&group);
  double operations = 0;
  for (const CallTime& time : times) {
    EXPECT_EQ(time.phase, Phase::kForward);
    EXPECT_GE(time.end, time.begin);
    operations += OperationsOf(time.bound->plan(), time.plan_call());
  }
  EXPECT_EQ(operations, 2.0 * 4 * 2 * 5 * 3);
  EXPECT_EQ(group.Outputs()[0].ToHost(), HostTensor::Full(DType::kFloat32, {4, 2, 5}, 3));
}

}  // namespace
}  // namespace bindery
