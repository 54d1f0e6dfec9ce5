// Bindery's side of the comparison with PyTorch of models that PyTorch exported (check.sh):
//
//   steps --model NAME.onnx --folder FOLDER --devices cpu:0,cpu:1 --steps 20 --rate 0.01 [--again AGAIN.onnx]
//
// The folder has arrays as files: data, label (of class numbers) and output, what PyTorch predicts. Prints the worst
// difference of the output, relative to its largest element, then the loss before each step of gradient descent with
// momentum: the mean cross-entropy. Exports the model again before that, and writes every parameter I, from 0 on, to
// FOLDER/values/I and that loss's gradient by it, as training has it, to FOLDER/gradients/I.
//
//   steps --zoo NAME --folder FOLDER --again AGAIN.onnx
//
// exports one of our models, with initial values, and writes what it is fed to FOLDER/data (and to FOLDER/target), and
// what it predicts to FOLDER/output.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "executor/executor.h"
#include "symbol/infer.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "train/data/array_iter.h"
#include "train/initializer.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

struct Options {
  std::string model, zoo, folder, devices = "cpu:0", again;
  int steps = 20;
  double rate = 0.01;
};

// The number of a DType and the number of axes as int32, the extents as int64, the elements.
HostTensor ReadArray(const std::string& path) {
  const std::string bytes = ReadFile(path);
  int32_t head[2] = {};
  if (bytes.size() < sizeof(head)) Throw<DataError>("{}: too short", path);
  std::memcpy(head, bytes.data(), sizeof(head));
  std::vector<int64_t> extents(static_cast<size_t>(head[1]));
  std::memcpy(extents.data(), bytes.data() + sizeof(head), extents.size() * sizeof(int64_t));
  HostTensor array(static_cast<DType>(head[0]), Shape(std::span<const int64_t>(extents)));
  const size_t begin = sizeof(head) + extents.size() * sizeof(int64_t);
  if (bytes.size() - begin != static_cast<size_t>(array.bytes())) Throw<DataError>("{}: of another size", path);
  std::memcpy(array.raw(), bytes.data() + begin, bytes.size() - begin);
  return array;
}

void WriteArray(const HostTensor& array, const std::string& path) {
  const int32_t head[2] = {static_cast<int32_t>(array.dtype()), array.shape().rank()};
  WriteFileAtomically(path, [&](const ByteSink& sink) {
    sink(head, sizeof(head));
    sink(array.shape().dims().data(), static_cast<int64_t>(array.shape().dims().size_bytes()));
    sink(array.raw(), array.bytes());
  });
}

using Array = std::shared_ptr<const HostTensor>;

void WriteGradients(const Model& model, const std::string& input, const Array& data, const Array& label,
                    const std::string& folder) {
  Executor net(model.symbol, {.inputs = {{input, data->shape(), data->dtype()}, {"softmax_label", label->shape()}}});
  net.SetParams(model.params, model.aux);
  net.Forward({{input, *data}, {"softmax_label", *label}});
  net.Backward();
  for (const char* kind : {"/values", "/gradients"}) {
    std::filesystem::remove_all(folder + kind);
    std::filesystem::create_directories(folder + kind);
  }
  int number = 0;
  for (const std::string& name : net.param_names()) {
    const std::string file = fmt::format("/{}", number++);
    WriteArray(model.params.at(name), folder + "/values" + file);
    WriteArray(net.Gradient(name), folder + "/gradients" + file);
  }
}

// Of probabilities (..., K), one label for each row.
double CrossEntropy(const HostTensor& probabilities, const HostTensor& label) {
  const int64_t classes = probabilities.shape()[-1], rows = label.elements();
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    sum -= std::log(probabilities.At(i * classes + static_cast<int64_t>(label.At(i))));
  }
  return sum / static_cast<double>(rows);
}

void ExportZoo(const Options& o) {
  Shape sample = ModelInputShape(o.zoo);
  const bool of_images = sample.rank() == 3;
  if (of_images) sample = {sample[0], std::min<int64_t>(sample[1], 64), std::min<int64_t>(sample[2], 64)};
  const Symbol network = ModelByName(o.zoo, {.input = sample});
  const Symbol scores = Symbol(network.entry().node->inputs()[0]);  // probabilities may be all 0 and 1
  const std::vector<std::string> names = scores.ListArguments();
  HostTensorMap data;
  ShapeMap given;
  for (const char* name : {"data", "target"}) {
    if (std::ranges::find(names, name) == names.end()) continue;
    HostTensor& values = data[name] = HostTensor(DType::kFloat32, sample.Insert(0, 2));
    given.emplace(name, values.shape());
    for (int64_t i = 0; i < values.elements(); ++i) {
      values.Set(i, of_images ? std::sin(static_cast<double>(i)) : static_cast<double>(i * 7 % ModelClasses(o.zoo)));
    }
    WriteArray(values, o.folder + "/" + name);
  }
  Model model = InitialModel(scores, given, Initializer("xavier"), /*seed=*/1);
  for (auto& [name, value] : model.aux) {
    if (name.ends_with("_var")) value = HostTensor::Full(DType::kFloat32, value.shape(), 2);
  }
  std::vector<HostTensor> fed;
  for (const std::string& name : names) {
    if (data.contains(name)) fed.push_back(data.at(name));
  }
  WriteArray(Trainer(model).Predict(fed)[0], o.folder + "/output");
  SaveModel(model, o.again);
}

int Run(const Options& o) {
  if (!o.zoo.empty()) {
    ExportZoo(o);
    return 0;
  }
  Model model = LoadModel(o.model);
  if (!o.again.empty()) SaveModel(model, o.again);
  const Array data = std::make_shared<const HostTensor>(ReadArray(o.folder + "/data"));
  const Array label = std::make_shared<const HostTensor>(ReadArray(o.folder + "/label"));
  const HostTensor expected = ReadArray(o.folder + "/output");
  const HostTensor output = Trainer(model).Predict({*data})[0];
  const HostTensor zeros(expected.dtype(), expected.shape());
  fmt::print("{}\n", MaxAbsDiff(output, expected) / MaxAbsDiff(expected, zeros));

  std::string input;
  for (const std::string& name : model.symbol.ListArguments()) {
    if (!model.params.contains(name)) input = name;
  }
  const bool of_rows = expected.shape().rank() > 2;
  model.symbol =
      SoftmaxOutput(model.symbol, {.normalization = Normalization::kValid, .preserve_shape = of_rows}, "softmax");
  WriteGradients(model, input, data, label, o.folder);
  Trainer trainer(model, {.devices = ParseDevices(o.devices),
                          .optimizer = fmt::format("sgd(lr={}, momentum=0.9)", o.rate),
                          // The metric of training has the batch's own statistics in it; it knows no rows of rows.
                          .metrics = of_rows ? "loss(output=softmax_output)" : "cross-entropy"});
  for (int step = 1; step <= o.steps; ++step) {
    ArrayIter iter({{input, data}}, {{"softmax_label", label}}, {.batch_size = data->shape()[0]});
    const double before = of_rows ? CrossEntropy(trainer.Predict(iter)[0], *label) : 0;
    iter.HardReset();
    const FitResult result = trainer.Fit(iter, {.epochs = step});
    fmt::print("{:.9}\n", of_rows ? before : result.train[0].second);
  }
  return 0;
}

}  // namespace
}  // namespace bindery

int main(int argc, char** argv) {
  CLI::App app("Bindery's side of tools/onnx_check/check.sh");
  bindery::Options o;
  app.add_option("--model", o.model, "what PyTorch exported");
  app.add_option("--zoo", o.zoo, "in its place, one of our models by name");
  app.add_option("--folder", o.folder, "where data, label and output are")->required();
  app.add_option("--devices", o.devices, "devices")->capture_default_str();
  app.add_option("--steps", o.steps, "steps of training")->capture_default_str();
  app.add_option("--rate", o.rate, "learning rate")->capture_default_str();
  app.add_option("--again", o.again, "export the model to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return bindery::Run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
