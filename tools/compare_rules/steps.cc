// Bindery's side of compare_rules/compare.sh: small trainings on two devices, line by line from standard input; after
// each, a line "result" and its numbers.
//
//   optimizer TEXT                 100 updates of eight weights in double: all weights after each
//   scale TEXT VALUE...            float32, one batch for each value, whose gradient is 1e33 times that, so that large
//                                  ones overflow: after each batch the loss scale and the weight
//   micro PARTS UPDATES            a regression by batches of 6 samples in so many parts: its two weights after each
#include <cmath>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "train/loss_scale.h"
#include "train/optimizers/optimizer.h"
#include "train/updater/updater.h"

namespace {

using namespace bindery;

const std::vector<Device> kDevices = {Cpu(0), Cpu(1)};

void Print(const std::vector<double>& numbers) {
  std::cout << "result";
  std::cout.precision(17);
  for (const double number : numbers) std::cout << " " << number;
  std::cout << std::endl;
}

HostTensor Weights(const DataParallelExecutorGroup& group) {
  HostTensorMap params;
  group.GetParams(&params, nullptr);
  return params.at("the_weight");
}

BatchPtr BatchOf(HostTensor data, std::vector<HostTensor> label = {}) {
  const int64_t samples = data.shape()[0];
  return std::make_shared<const Batch>(Batch{.data = {std::move(data)}, .label = std::move(label), .samples = samples});
}

void RunOptimizer(const std::string& text) {
  constexpr int64_t kWeights = 8;
  const Symbol data = Variable("data", {.dtype = DType::kFloat64});
  const Symbol w = Variable("the_weight", {.shape = Shape{1, kWeights}, .dtype = DType::kFloat64});
  DataParallelExecutorGroup group(MakeLoss(data * w + 0.05 * Square(w), {}, "loss"),
                                  {.devices = kDevices, .data = {{"data", {2, kWeights}, DType::kFloat64}}});
  HostTensor start(DType::kFloat64, {1, kWeights});
  for (int64_t i = 0; i < kWeights; ++i) start.Set(i, std::cos(2.0 * static_cast<double>(i)) * 2);
  group.SetParams({{"the_weight", start}}, {});
  Updater updater(&group, {.optimizer = MakeOptimizer(text)});
  std::vector<double> numbers;
  for (int step = 1; step <= 100; ++step) {
    HostTensor values(DType::kFloat64, {2, kWeights});
    for (int64_t i = 0; i < 2 * kWeights; ++i) values.Set(i, std::sin(static_cast<double>(i % kWeights) + 1.7 * step));
    updater.Update(BatchOf(values));
    const HostTensor now = Weights(group);
    for (int64_t i = 0; i < kWeights; ++i) numbers.push_back(now.At(i));
  }
  Print(numbers);
}

void RunScale(std::istream& line) {
  std::string text;
  line >> text;
  const Symbol w = Variable("the_weight", {.shape = Shape{1, 1}});
  DataParallelExecutorGroup group(ScaleLosses(MakeLoss(Variable("data") * w, {.grad_scale = 1e33}, "loss")),
                                  {.devices = kDevices, .data = {{"data", {2, 1}}}});
  group.SetParams({{"the_weight", HostTensor(DType::kFloat32, {1, 1})}}, {});
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=1e-33)"), .loss_scale = ParseLossScaling(text)});
  std::vector<double> numbers;
  for (double value = 0; line >> value;) {
    updater.Update(BatchOf(HostTensor::Full(DType::kFloat32, {2, 1}, value)));
    updater.Finish(updater.step());
    // A step that was committed may let the scale grow with the next.
    numbers.push_back(updater.loss_scale().scale);
    numbers.push_back(Weights(group).At(0));
  }
  Print(numbers);
}

void RunMicro(std::istream& line) {
  int64_t parts = 0, updates = 0;
  line >> parts >> updates;
  const Symbol y = FullyConnected(Variable("data"), {.num_hidden = 1, .no_bias = true}, "the");
  const int64_t samples = 6 / parts;
  DataParallelExecutorGroup group(LinearRegressionOutput(y, {}, "out"), {.devices = kDevices,
                                                                         .data = {{"data", {samples, 2}}},
                                                                         .labels = {{"out_label", {samples, 1}}},
                                                                         .grad_req = GradReq::kAdd});
  group.SetParams({{"the_weight", HostTensor::From({1, 2}, {0.3f, -0.2f})}}, {});
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  std::vector<double> numbers;
  for (int64_t update = 0; update < updates; ++update) {
    std::vector<BatchPtr> batches;
    for (int64_t part = 0; part < parts; ++part) {
      HostTensor data(DType::kFloat32, {samples, 2}), label(DType::kFloat32, {samples, 1});
      for (int64_t i = 0; i < samples; ++i) {
        const double number = static_cast<double>(update * 6 + part * samples + i);
        data.Set(2 * i, std::sin(number));
        data.Set(2 * i + 1, std::cos(3 * number));
        label.Set(i, std::sin(2 * number));
      }
      batches.push_back(BatchOf(data, {label}));
    }
    updater.Update(batches);
    const HostTensor now = Weights(group);
    numbers.push_back(now.At(0));
    numbers.push_back(now.At(1));
  }
  Print(numbers);
}

}  // namespace

int main() {
  try {
    for (std::string text; std::getline(std::cin, text);) {
      std::istringstream line(text);
      std::string what;
      line >> what;
      if (what == "optimizer") {
        RunOptimizer(text.substr(what.size() + 1));
      } else if (what == "scale") {
        RunScale(line);
      } else if (what == "micro") {
        RunMicro(line);
      } else {
        Throw("expected optimizer, scale or micro, got \"{}\"", what);
      }
    }
  } catch (const std::exception& e) {
    std::cerr << "compare_rules: " << e.what() << "\n";
    return 1;
  }
}
