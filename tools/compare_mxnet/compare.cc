#include "tools/compare_mxnet/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/files.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/mxnet/mxnet.h"
#include "symbol/ops/fixed_gamma.h"
#include "train/data/tables/npy.h"
#include "train/loop/bucketed_model.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

double Difference(const HostTensor& ours, const HostTensor& theirs) {
  if (ours.shape() != theirs.shape()) {
    Throw<ShapeError>("expected a value of {}, as MXNet's is, got {}", theirs.shape(), ours.shape());
  }
  double largest = 1;
  for (int64_t i = 0; i < theirs.elements(); ++i) largest = std::max(largest, std::abs(theirs.At(i)));
  return MaxAbsDiff(ours.Cast(DType::kFloat64), theirs.Cast(DType::kFloat64)) / largest;
}

// The arrays called PREFIX:NAME, by name.
HostTensorMap Named(const HostTensorMap& arrays, const std::string& prefix) {
  HostTensorMap named;
  for (const auto& [name, array] : arrays) {
    if (name.starts_with(prefix + ":")) named.emplace(name.substr(prefix.size() + 1), array);
  }
  return named;
}

std::string SgdOf(const HostTensorMap& arrays) {
  const auto number = [&](const char* name) { return arrays.at(name).At(0); };
  return fmt::format("sgd(lr={}, momentum={}, wd={})", number("lr"), number("momentum"), number("wd"));
}

HostTensor StepOf(const HostTensor& steps, int64_t step) {
  return steps.Slice(0, step, step + 1).Reshape(steps.shape().Erase(0));
}

std::vector<DataDesc> Describe(const HostTensorMap& steps) {
  std::vector<DataDesc> list;
  for (const auto& [name, array] : steps) list.push_back({.name = name, .shape = array.shape().Erase(0)});
  return list;
}

class ModelComparison {
 public:
  ModelComparison(const std::string& folder, const std::string& name, const std::vector<Device>& devices,
                  const std::vector<double>& workload)
      : path_(folder + "/" + name + "-symbol.json"), expected_(ReadNpz(folder + "/" + name + ".npz")),
        data_(Named(expected_, "data")), labels_(Named(expected_, "label")), model_(LoadModel(path_)),
        group_(model_.symbol,
               {.devices = devices, .workload = workload, .data = Describe(data_), .labels = Describe(labels_)}) {
    if (data_.empty() || model_.params.empty()) Throw("\"{}\" holds nothing to compare with", path_);
    group_.SetParams(model_.params, model_.aux);
  }

  std::vector<MxnetDifference> Run() {
    Predict();
    Differentiate();
    Train();
    return std::move(differences_);
  }

 private:
  BatchPtr BatchOf(int64_t step) const {
    Batch batch;
    for (const auto& [name, steps] : data_) batch.data.push_back(StepOf(steps, step));
    for (const auto& [name, steps] : labels_) batch.label.push_back(StepOf(steps, step));
    batch.samples = batch.data[0].shape()[0];
    return std::make_shared<const Batch>(std::move(batch));
  }
  void Add(const std::string& what, double difference) { differences_.push_back({what, difference}); }

  void Predict() {
    group_.Forward(BatchOf(0), Mode::kPredict);
    const std::vector<Tensor> outputs = group_.Outputs();
    for (const auto& [head, value] : Named(expected_, "predict")) {
      Add("predict:" + head, Difference(outputs.at(std::stoul(head)).ToHost(), value));
    }
  }

  // As our model has them: MXNet's vector of a recurrent layer's parameters is many here.
  Model AsModel(HostTensorMap args, HostTensorMap aux) const {
    return ParseMxnet(ReadFile(path_), {.args = std::move(args), .aux = std::move(aux)}, path_);
  }

  // Those of data that nothing asks for are left out, and those that are 0 whatever the value is.
  void Differentiate() {
    group_.Forward(BatchOf(0), Mode::kTrain);
    group_.Backward();
    HostTensorMap theirs = Named(expected_, "grad");
    for (const auto* inputs : {&data_, &labels_}) {
      for (const auto& [name, value] : *inputs) theirs.erase(name);
    }
    for (const auto& [name, value] : AsModel(theirs, {}).params) {
      HostTensor sum;
      for (size_t device = 0; device < group_.executors().size(); ++device) {
        const HostTensor share = group_.GetGradient(name, static_cast<int>(device));
        if (sum.elements() == 0) sum = HostTensor(share.dtype(), share.shape());
        for (int64_t i = 0; i < share.elements(); ++i) sum.Set(i, sum.At(i) + share.At(i));
      }
      Add("grad:" + name, Difference(sum, value));
    }
  }

  void Train() {
    group_.SetParams(model_.params, model_.aux);
    Updater updater(&group_, {.optimizer = MakeOptimizer(SgdOf(expected_))});
    const HostTensorMap outputs = Named(expected_, "output");
    for (int64_t step = 0; step < data_.begin()->second.shape()[0]; ++step) {
      updater.Update(BatchOf(step));
      const std::vector<Tensor> heads = group_.Outputs();
      for (const auto& [head, steps] : outputs) {
        Add(fmt::format("output:{} of step {}", head, step),
            Difference(heads.at(std::stoul(head)).ToHost(), StepOf(steps, step)));
      }
    }
    HostTensorMap args, aux;
    group_.GetParams(&args, &aux);
    const Model theirs = AsModel(Named(expected_, "param"), Named(expected_, "aux"));
    const std::set<std::string> not_read = ListFixedGammas(model_.symbol);
    for (const auto& [name, value] : theirs.params) {
      if (!not_read.contains(name)) Add("param:" + name, Difference(args.at(name), value));
    }
    for (const auto& [name, value] : theirs.aux) Add("aux:" + name, Difference(aux.at(name), value));
  }

  const std::string path_;
  const HostTensorMap expected_, data_, labels_;
  const Model model_;
  DataParallelExecutorGroup group_;
  std::vector<MxnetDifference> differences_;
};

}  // namespace

std::vector<MxnetDifference> CompareMxnetModel(const std::string& folder, const std::string& name,
                                               const std::vector<Device>& devices,
                                               const std::vector<double>& workload) {
  return ModelComparison(folder, name, devices, workload).Run();
}

std::vector<MxnetDifference> CompareMxnetBuckets(const std::string& folder, const std::vector<Device>& devices,
                                                 const std::vector<double>& workload) {
  const HostTensorMap expected = ReadNpz(folder + "/buckets.npz"), data = Named(expected, "data"),
                      labels = Named(expected, "label"), outputs = Named(expected, "output");
  const HostTensor& keys = expected.at("keys");
  const auto file_of = [&](int64_t key) { return fmt::format("{}/bucket_{}-symbol.json", folder, key); };
  int64_t largest = 0;
  for (int64_t step = 0; step < keys.elements(); ++step) {
    largest = std::max(largest, static_cast<int64_t>(keys.At(step)));
  }
  const int64_t batch = data.at("0").shape()[0];
  const auto net = [&](int64_t key) {
    return BucketNet{.symbol = LoadModel(file_of(key)).symbol,
                     .data = {{"data", {batch, key}}},
                     .labels = {{"softmax_label", {batch, key}}}};
  };
  BucketedModel model(net, largest, {.devices = devices, .workload = workload}, {.optimizer = SgdOf(expected)},
                      LoadModel(file_of(largest)));
  std::vector<MxnetDifference> differences;
  for (int64_t step = 0; step < keys.elements(); ++step) {
    const auto key = static_cast<int64_t>(keys.At(step));
    const std::string name = std::to_string(step);
    model.Step(key, std::make_shared<const Batch>(
                        Batch{.data = {data.at(name)}, .label = {labels.at(name)}, .samples = batch}));
    differences.push_back(
        {"output of step " + name, Difference(model.group(key).Outputs()[0].ToHost(), outputs.at(name))});
  }
  const Model trained = model.ToModel();
  for (const auto& [name, value] : Named(expected, "param")) {
    differences.push_back({"param:" + name, Difference(trained.params.at(name), value)});
  }
  return differences;
}

std::vector<MxnetDifference> CompareMxnetStates(const std::string& folder, const std::vector<Device>& devices,
                                                const std::vector<double>& workload) {
  const std::string path = folder + "/states-symbol.json";
  const HostTensorMap expected = ReadNpz(folder + "/states.npz"), data = Named(expected, "data"),
                      labels = Named(expected, "label"), outputs = Named(expected, "output");
  const Model model = LoadModel(path);
  const Shape whole = data.at("0").shape();
  const Shape state = {1, whole[0], static_cast<int64_t>(expected.at("hidden").At(0))};  // (layers, samples, hidden)
  DataParallelExecutorGroup group(model.symbol, {.devices = devices,
                                                 .workload = workload,
                                                 .data = {{"data", whole}},
                                                 .labels = {{"softmax_label", whole}},
                                                 .states = {{.name = "h", .shape = state, .layout = "LNC"},
                                                            {.name = "c", .shape = state, .layout = "LNC"}}});
  group.SetParams(model.params, model.aux);
  Updater updater(&group, {.optimizer = MakeOptimizer(SgdOf(expected))});
  std::vector<MxnetDifference> differences;
  for (size_t step = 0; step < data.size(); ++step) {
    const std::string name = std::to_string(step);
    updater.Update(
        std::make_shared<const Batch>(Batch{.data = {data.at(name)}, .label = {labels.at(name)}, .samples = whole[0]}));
    std::vector<std::vector<Tensor>> heads = group.OutputsPerDevice();
    differences.push_back({"output of step " + name, Difference(group.Outputs()[0].ToHost(), outputs.at(name))});
    heads.erase(heads.begin());
    group.SetStates(heads);
  }
  HostTensorMap args, aux;
  group.GetParams(&args, &aux);
  for (const auto& [name, value] : ParseMxnet(ReadFile(path), {.args = Named(expected, "param")}, path).params) {
    differences.push_back({"param:" + name, Difference(args.at(name), value)});
  }
  return differences;
}

// Losses are of a batch; all else is of arrays.
std::vector<MxnetDifference> CompareMxnetOperator(const std::string& folder, const std::string& name, Device device) {
  const std::string path = folder + "/" + name + "-symbol.json";
  const HostTensorMap expected = ReadNpz(folder + "/" + name + ".npz"), data = Named(expected, "data");
  const Model model = ParseMxnet(ReadFile(path), {.args = data}, path);
  const bool is_batch = (data.contains("label") && name.find("_ctc") == std::string::npos) ||
                        name.find("MakeLoss") != std::string::npos || name.find("make_loss") != std::string::npos;
  const HostTensorMap gradients = ParseMxnet(ReadFile(path), {.args = Named(expected, "grad")}, path).params;
  ExecutorOptions options{.device = device};
  std::map<std::string, GradReq> requests;
  for (const auto& [argument, value] : model.params) {
    DataDesc input{.name = argument, .shape = value.shape(), .dtype = value.dtype()};
    if (!is_batch) input.layout = std::string(static_cast<size_t>(value.shape().rank()), 'C');
    options.inputs.push_back(input);
    requests[argument] = gradients.contains(argument) ? GradReq::kWrite : GradReq::kNull;
  }
  options.grad_req = requests;
  Executor executor(model.symbol, options);
  executor.SetParams({}, model.aux);
  executor.Forward(model.params, Mode::kTrain);
  std::vector<MxnetDifference> differences;
  HostTensorMap heads;
  for (const auto& [head, value] : Named(expected, "output")) {
    differences.push_back({"output:" + head, Difference(executor.Output(std::stoi(head)), value)});
    heads.emplace(executor.output_names().at(std::stoul(head)), expected.at("head:" + head));
  }
  if (!gradients.empty()) executor.Backward(heads);
  for (const auto& [argument, value] : gradients) {
    differences.push_back({"grad:" + argument, Difference(executor.Gradient(argument), value)});
  }
  return differences;
}

}  // namespace bindery
