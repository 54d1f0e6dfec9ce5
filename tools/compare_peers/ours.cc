// Bindery's side of the comparison with its peers (compare.sh): trains or predicts one model on request.
//
//   ours --model "gpt(layers=6, width=384)" --batch-size 4 --phase train --folder FOLDER
//
// It speaks the protocol of protocol.py. Asked to "write", it writes what the others start from into the folder:
// initial.npz, parameters and running statistics by name, batch.npz, "data" and "label", and for predictions
// model.onnx, the same network up to its scores.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/predictor.h"
#include "symbol/infer.h"
#include "symbol/model.h"
#include "train/initializer.h"
#include "train/metrics/metrics.h"
#include "train/updater/updater.h"
#include "train/weights/weights.h"
#include "train/zoo.h"

namespace bindery {
namespace {

struct Options {
  std::string model, folder, phase = "train", devices = "cpu:0", optimizer = "sgd";
  int64_t batch_size = 1;
  int threads = 0;
  Tuning tuning = Tuning::kOff;
  bool least = false;  // working memory, by computing values again
};

struct Samples {
  HostTensor data, label;
};

Samples Draw(const Options& o, const Shape& data_shape, const Shape& label_shape) {
  Samples samples{HostTensor(DType::kFloat32, data_shape), HostTensor(DType::kFloat32, label_shape)};
  PhiloxStream random(1, "samples");
  const auto draw_classes = [&](HostTensor* tensor) {
    for (float& v : tensor->data<float>()) {
      v = static_cast<float>(random.Below(static_cast<uint64_t>(ModelClasses(o.model))));
    }
  };
  if (data_shape.rank() == 2) {  // a sequence of class numbers
    draw_classes(&samples.data);
  } else {
    for (float& v : samples.data.data<float>()) v = random.Uniform(-1, 1);
  }
  draw_classes(&samples.label);
  return samples;
}

// A side that is made: what it takes to do one step, and the mean cross-entropy that the step has found.
struct Side {
  std::function<void()> step;
  std::function<double()> loss;
};

Shape DataShape(const Options& o) { return ModelInputShape(o.model).Insert(0, o.batch_size); }
Shape LabelShape(const Options& o) {
  return *InferShapes(ModelByName(o.model), {{"data", DataShape(o)}}).arguments.back();
}

// What all sides start from: the network, in predictions up to its scores, and its initial parameters. Predictions have
// running statistics that are no trivial ones.
Model StartOf(const Options& o) {
  const bool training = o.phase == "train";
  const Symbol network = ModelByName(o.model);
  ShapeMap inputs = {{"data", DataShape(o)}};
  if (training) inputs["softmax_label"] = LabelShape(o);
  Model model = InitialModel(training ? network : Symbol(network.entry().node->inputs()[0]), inputs,
                             Initializer("xavier"), /*seed=*/1);
  if (training) return model;
  PhiloxStream random(2, "states");
  for (auto& [name, state] : model.aux) {
    for (float& v : state.data<float>()) {
      v = name.ends_with("_var") ? random.Uniform(0.5f, 2) : random.Uniform(-0.1f, 0.1f);
    }
  }
  return model;
}

// It into files. A process of its own does it: what it takes is no part of what is measured.
void Write(const Options& o) {
  const Model model = StartOf(o);
  const Samples samples = Draw(o, DataShape(o), LabelShape(o));
  HostTensorMap values = model.params;
  values.insert(model.aux.begin(), model.aux.end());
  SaveWeights({.tensors = std::move(values)}, o.folder + "/initial.npz");
  SaveWeights({.tensors = {{"data", samples.data}, {"label", samples.label}}}, o.folder + "/batch.npz");
  if (o.phase == "train") return;
  try {
    SaveModel(model, o.folder + "/model.onnx");
  } catch (const Error& error) {  // what ONNX has no operators for
    fmt::print(stderr, "ours: {}\n", error.what());
  }
}

Side MakeTraining(const Options& o) {
  const Shape data = DataShape(o), label = LabelShape(o);
  const Model model = StartOf(o);
  const auto group =
      std::make_shared<DataParallelExecutorGroup>(model.symbol, GroupOptions{.devices = ParseDevices(o.devices),
                                                                             .data = {{"data", data}},
                                                                             .labels = {{"softmax_label", label}},
                                                                             .mirror = {.least = o.least},
                                                                             .threads_per_device = o.threads,
                                                                             .switches = {.tuning = o.tuning}});
  group->SetParams(model.params, model.aux);
  const Samples samples = Draw(o, data, label);
  const BatchPtr batch =
      std::make_shared<const Batch>(Batch{.data = {samples.data}, .label = {samples.label}, .samples = o.batch_size});
  const auto updater = std::make_shared<Updater>(group.get(), UpdaterOptions{.optimizer = MakeOptimizer(o.optimizer)});
  // Until every device has the new parameters. The loss is read afterwards, outside the time.
  const auto step = [group, batch, updater] {
    updater->Update(batch);
    for (const auto& block : group->store().blocks()) {
      for (const Tensor& values : block.values) values.Wait();
    }
  };
  const std::shared_ptr<Metric> metric =
      MakeMetric(data.rank() == 2 ? "cross-entropy(eps=0, axis=2)" : "cross-entropy(eps=0)");
  const auto loss = [group, batch, metric] {
    metric->Reset();
    group->UpdateMetric(metric.get(), batch->label);
    return static_cast<double>(metric->Get()[0].second);
  };
  return {step, loss};
}

// Mean cross-entropy of scores whose last axis is the classes'.
double CrossEntropy(const HostTensor& scores, const HostTensor& label) {
  const int64_t rows = label.elements(), classes = scores.elements() / rows;
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = scores.data<float>().data() + i * classes;
    const double largest = *std::max_element(row, row + classes);
    double total = 0;
    for (int64_t k = 0; k < classes; ++k) total += std::exp(row[k] - largest);
    sum += std::log(total) + largest - row[static_cast<int64_t>(label.data<float>()[static_cast<size_t>(i)])];
  }
  return sum / static_cast<double>(rows);
}

Side MakePrediction(const Options& o) {
  const Shape shape = DataShape(o);
  const auto predictor = std::make_shared<const Predictor>(
      StartOf(o), PredictorOptions{
                      .inputs = {{"data", shape}}, .calls = 1, .threads = o.threads, .switches = {.tuning = o.tuning}});
  const auto samples = std::make_shared<const Samples>(Draw(o, shape, LabelShape(o)));
  const auto inputs = std::make_shared<TensorMap>();
  const Tensor on_device(Cpu(0), samples->data.dtype(), shape);
  on_device.CopyFrom(samples->data);
  inputs->emplace("data", on_device);
  const auto step = [predictor, inputs] { predictor->Predict(*inputs); };
  const auto loss = [predictor, samples] {
    return CrossEntropy(predictor->Predict({{"data", samples->data}})[0], samples->label);
  };
  return {step, loss};
}

std::string Losses(const Side& side, int64_t steps) {
  std::string line;
  for (int64_t i = 0; i < steps; ++i) {
    side.step();
    fmt::format_to(std::back_inserter(line), "{} ", side.loss());
  }
  return line;
}

std::string Times(const Side& side, int64_t steps) {
  std::string line;
  for (int64_t i = 0; i < steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    side.step();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    fmt::format_to(std::back_inserter(line), "{} ", elapsed.count());
  }
  return line;
}

void Say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  CLI::App app("Bindery's side of compare.sh: steps on request; commands on standard input.", "ours");
  Options o;
  app.add_option("--model", o.model, "by name, with settings")->required();
  app.add_option("--folder", o.folder, "where the others find what they start from")->required();
  app.add_option("--batch-size", o.batch_size)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--phase", o.phase)->check(CLI::IsMember({"train", "predict"}))->capture_default_str();
  app.add_option("--device", o.devices, "of a training")->capture_default_str();
  app.add_option("--threads", o.threads, "per device; 0: the cores, shared out")->capture_default_str();
  app.add_option("--optimizer", o.optimizer)->capture_default_str();
  std::string tune = ToString(o.tuning);
  app.add_option("--tune", tune, "how convolutions are chosen: off, measured, winograd")->capture_default_str();
  std::string mirror = "off";
  app.add_option("--mirror", mirror, "of a training: least computes values again, in the least working memory")
      ->check(CLI::IsMember({"off", "least"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  o.tuning = ParseTuning(tune);
  o.least = mirror == "least";
  Say("started Bindery");
  Side side;
  const auto check_made = [&] {
    if (!side.step) Throw("\"make\" comes first");
  };
  for (std::string command; std::cin >> command;) {
    int64_t steps = 0;
    if (command == "write") {
      Write(o);
      Say("written");
    } else if (command == "make") {
      side = o.phase == "train" ? MakeTraining(o) : MakePrediction(o);
      Say("made");
    } else if (command == "losses" && std::cin >> steps) {
      check_made();
      Say(Losses(side, steps));
    } else if (command == "run" && std::cin >> steps) {
      check_made();
      Say(Times(side, steps));
    } else {
      Throw("unknown command \"{}\"; there are: write, make, losses N, run N", command);
    }
  }
  return 0;
}

}  // namespace
}  // namespace bindery

int main(int argc, char** argv) {
  try {
    return bindery::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "ours: {}\n", e.what());
    return 1;
  }
}
