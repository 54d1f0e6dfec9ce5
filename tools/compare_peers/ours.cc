// Bindery's side of the comparison with its peers (compare.sh): trains or predicts one model on request.
//
//   ours --model "gpt(layers=6, width=384)" --batch-size 4 --phase train --folder FOLDER
//
// It speaks the protocol of protocol.py. Asked to "make", it writes what the others start from into the folder:
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
#include <map>
#include <memory>
#include <string>
#include <vector>

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

void Save(const Options& o, HostTensorMap values, const Samples& samples) {
  SaveWeights({.tensors = std::move(values)}, o.folder + "/initial.npz");
  SaveWeights({.tensors = {{"data", samples.data}, {"label", samples.label}}}, o.folder + "/batch.npz");
}

// A side that is made: what it takes to do one step, and the mean cross-entropy that the step has found.
struct Side {
  std::function<void()> step;
  std::function<double()> loss;
};

Side MakeTraining(const Options& o) {
  const Symbol symbol = ModelByName(o.model);
  const Shape data = ModelInputShape(o.model).Insert(0, o.batch_size);
  const Shape label = *InferShapes(symbol, {{"data", data}}).arguments.back();
  const auto group =
      std::make_shared<DataParallelExecutorGroup>(symbol, GroupOptions{.devices = ParseDevices(o.devices),
                                                                       .data = {{"data", data}},
                                                                       .labels = {{"softmax_label", label}},
                                                                       .threads_per_device = o.threads});
  std::map<std::string, ValueType> variables;
  for (const StoredParameter& p : group->store().parameters()) {
    variables[p.name] = {.dtype = p.dtype, .shape = p.shape};
  }
  HostTensorMap args, aux;
  for (auto& [name, value] : InitialValues(symbol, variables, Initializer("xavier"), /*seed=*/1)) {
    (group->store().Find(name)->auxiliary ? aux : args)[name] = std::move(value);
  }
  group->SetParams(args, aux);
  const Samples samples = Draw(o, data, label);
  args.merge(aux);
  Save(o, std::move(args), samples);
  const BatchPtr batch = std::make_shared<const Batch>(
      Batch{.data = {samples.data}, .label = {samples.label}, .samples = o.batch_size});
  const auto updater =
      std::make_shared<Updater>(group.get(), UpdaterOptions{.optimizer = MakeOptimizer(o.optimizer)});
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

// The model up to its scores, of initial parameters and of running statistics that are no trivial ones.
Model MakeModel(const Options& o, const Shape& data) {
  Model model{.symbol = ModelByName(o.model)};
  model.symbol = Symbol(model.symbol.entry().node->inputs()[0]);
  const InferredShapes shapes = InferShapes(model.symbol, {{"data", data}});
  const std::vector<std::string> names = model.symbol.ListArguments(), states = model.symbol.ListAuxiliaryStates();
  std::map<std::string, ValueType> parameters;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != "data") parameters[names[i]].shape = *shapes.arguments[i];
  }
  model.params = InitialValues(model.symbol, parameters, Initializer("xavier"), /*seed=*/1);
  PhiloxStream random(2, "states");
  for (size_t i = 0; i < states.size(); ++i) {
    HostTensor& state = model.aux[states[i]] = HostTensor(DType::kFloat32, *shapes.auxiliary[i]);
    for (float& v : state.data<float>()) {
      v = states[i].ends_with("_var") ? random.Uniform(0.5f, 2) : random.Uniform(-0.1f, 0.1f);
    }
  }
  return model;
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
  const Shape shape = ModelInputShape(o.model).Insert(0, o.batch_size);
  const Model model = MakeModel(o, shape);
  const auto predictor = std::make_shared<const Predictor>(
      model, PredictorOptions{.inputs = {{"data", shape}}, .calls = 1, .threads = o.threads});
  const auto samples = std::make_shared<const Samples>(
      Draw(o, shape, *InferShapes(ModelByName(o.model), {{"data", shape}}).arguments.back()));
  HostTensorMap values = model.params;
  for (const auto& [name, value] : model.aux) values[name] = value;
  Save(o, std::move(values), *samples);
  try {
    SaveModel(model, o.folder + "/model.onnx");
  } catch (const Error& error) {  // what ONNX has no operators for
    fmt::print(stderr, "ours: {}\n", error.what());
  }
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
  CLI11_PARSE(app, argc, argv);
  Say("started Bindery");
  Side side;
  const auto check_made = [&] {
    if (!side.step) Throw("\"make\" comes first");
  };
  for (std::string command; std::cin >> command;) {
    int64_t steps = 0;
    if (command == "make") {
      side = o.phase == "train" ? MakeTraining(o) : MakePrediction(o);
      Say("made");
    } else if (command == "losses" && std::cin >> steps) {
      check_made();
      Say(Losses(side, steps));
    } else if (command == "run" && std::cin >> steps) {
      check_made();
      Say(Times(side, steps));
    } else {
      Throw("unknown command \"{}\"; there are: make, losses N, run N", command);
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
