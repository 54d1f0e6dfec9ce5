// Bindery's side of the comparison of predictions with ONNX Runtime (compare.sh):
//
//   predict --model NAME --batch-size N --threads T --folder FOLDER [--no-fold]
//
// exports one of our models, with initial values and running statistics that are no trivial ones, to
// FOLDER/model.onnx, and writes, as bare float32, what it is fed to FOLDER/data and what it predicts to FOLDER/output.
// Prints the shape of what it is fed on a line. Then, for each line on standard input, a number, it predicts so many
// times and prints the nanoseconds of each time on a line, until there is no more.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "executor/predictor.h"
#include "symbol/infer.h"
#include "symbol/model.h"
#include "train/initializer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

struct Options {
  std::string model, folder;
  int64_t batch_size = 1;
  int threads = 1;
  bool no_fold = false;
};

void WriteElements(const HostTensor& array, const std::string& path) {
  WriteFileAtomically(path, [&](const ByteSink& sink) { sink(array.raw(), array.bytes()); });
}

HostTensor DrawData(const std::string& model, const Shape& shape) {
  HostTensor data(DType::kFloat32, shape);
  PhiloxStream random(1, "data");
  const bool of_classes = shape.rank() == 2 && model.starts_with("gpt");
  for (float& v : data.data<float>()) {
    v = of_classes ? static_cast<float>(random.Below(static_cast<uint64_t>(ModelClasses(model))))
                   : random.Uniform(-1, 1);
  }
  return data;
}

// Its scores: probabilities may be all 0 and 1.
Model MakeModel(const std::string& name, const Shape& data) {
  Model model{.symbol = ModelByName(name)};
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
    for (float& v : state.data<float>())
      v = states[i].ends_with("_var") ? random.Uniform(0.5, 2) : random.Uniform(-1, 1);
  }
  return model;
}

int Run(const Options& o) {
  const Shape shape = ModelInputShape(o.model).Insert(0, o.batch_size);
  const Model model = MakeModel(o.model, shape);
  SaveModel(model, o.folder + "/model.onnx");
  const Predictor predictor(
      model, {.inputs = {{"data", shape}}, .calls = 1, .threads = o.threads, .switches = {.fold = !o.no_fold}});
  const HostTensor data = DrawData(o.model, shape);
  WriteElements(data, o.folder + "/data");
  WriteElements(predictor.Predict({{"data", data}})[0], o.folder + "/output");
  std::cout << fmt::format("{}", fmt::join(shape, " ")) << std::endl;

  TensorMap inputs;
  const Tensor on_device(Cpu(0), data.dtype(), shape);
  on_device.CopyFrom(data);
  inputs.emplace("data", on_device);
  for (int64_t times = 0; std::cin >> times;) {
    std::string line;
    for (int64_t i = 0; i < times; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      predictor.Predict(inputs);
      const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
      fmt::format_to(std::back_inserter(line), "{} ", taken.count());
    }
    std::cout << line << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace bindery

int main(int argc, char** argv) {
  bindery::Options o;
  CLI::App app{"Predictions of a model by name, to compare with ONNX Runtime's."};
  app.add_option("--model", o.model)->required();
  app.add_option("--batch-size", o.batch_size);
  app.add_option("--threads", o.threads);
  app.add_option("--folder", o.folder)->required();
  app.add_flag("--no-fold", o.no_fold, "keep batch-norms by themselves");
  CLI11_PARSE(app, argc, argv);
  try {
    return bindery::Run(o);
  } catch (const bindery::Error& e) {
    std::cerr << "predict: " << e.what() << "\n";
    return 1;
  }
}
