// Models that PyTorch, transformers and ONNX Runtime's quantizer wrote (stored/onnx, by tools/onnx_check/stored.py):
// texts of open batch and length, whose masks are computed in the graph, pictures of open size, quantized ones, and such
// of ONNX Runtime's own operators; and what ONNX Runtime computes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/test_device.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

const std::string kFolder = "tests/train/stored/onnx/";

struct StoredRun {
  HostTensorMap inputs = {};
  std::map<int, HostTensor> outputs = {};
};
std::vector<StoredRun> RunsOf(const std::string& name) {
  std::vector<StoredRun> runs;
  for (const auto& [key, value] : ReadNpz(kFolder + name + ".npz")) {  // "1:in:x", "1:out:0"
    const size_t run = std::stoul(key), colon = key.rfind(':');
    if (runs.size() <= run) runs.resize(run + 1);
    if (key.find(":in:") != std::string::npos) {
      runs[run].inputs.emplace(key.substr(colon + 1), value);
    } else {
      runs[run].outputs.emplace(std::stoi(key.substr(colon + 1)), value);
    }
  }
  return runs;
}

// The inputs that are asked for, with this run's extents.
std::vector<DataDesc> DescriptionsOf(const Model& model, const StoredRun& run) {
  std::vector<DataDesc> descriptions;
  for (const std::string& name : model.symbol.ListArguments()) {
    if (run.inputs.contains(name))
      descriptions.push_back(
          {.name = name, .shape = run.inputs.at(name).shape(), .dtype = run.inputs.at(name).dtype()});
  }
  return descriptions;
}

void ExpectOutputs(const std::vector<HostTensor>& outputs, const StoredRun& run, double tolerance) {
  ASSERT_EQ(outputs.size(), run.outputs.size());
  for (const auto& [i, expected] : run.outputs) {
    const HostTensor& output = outputs[static_cast<size_t>(i)];
    ASSERT_EQ(output.shape(), expected.shape());
    for (int64_t k = 0; k < expected.elements(); ++k) {
      // Of large ones the same share: neighbours of float32 are 2e-4 apart at the thousands of few_bits.
      ASSERT_NEAR(output.At(k), expected.At(k), tolerance * std::max(1.0, std::abs(expected.At(k)))) << k;
    }
  }
}

std::vector<HostTensor> OnDevices(const Model& model, const StoredRun& run, const std::vector<Device>& devices) {
  DataParallelExecutorGroup group(model.symbol,
                                  {.devices = devices, .data = DescriptionsOf(model, run), .for_training = false});
  group.SetParams(model.params, model.aux);
  Batch batch;
  for (const DataDesc& description : DescriptionsOf(model, run)) batch.data.push_back(run.inputs.at(description.name));
  group.Forward(batch, Mode::kPredict);
  std::vector<HostTensor> outputs;
  for (const Tensor& output : group.Outputs()) outputs.push_back(output.ToHost());
  return outputs;
}

std::vector<std::string> Stored() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

// One model, bound to each run's extents.
TEST(OnnxStored, ModelsComputeWhatOnnxRuntimeDoes) {
  const std::vector<std::string> names = Stored();
  EXPECT_EQ(names.size(), 24u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Model model = LoadModel(kFolder + name + ".onnx");
    for (const StoredRun& run : RunsOf(name)) {
      ExpectOutputs(OnDevices(model, run, {TestDevice(0)}), run, 2e-5);
      if (run.inputs.begin()->second.shape()[0] < 2 || name.starts_with("swin")) continue;
      ExpectOutputs(OnDevices(model, run, {TestDevice(0), TestDevice(1)}), run, 2e-5);
    }
  }
}

// All weights are parameters, and against their gradients a loss goes down.
TEST(OnnxStored, AModelOfTextsIsTrained) {
  for (const std::string name : {"bert_traced", "gpt2_exported", "llama_traced"}) {
    SCOPED_TRACE(name);
    Model model = LoadModel(kFolder + name + ".onnx");
    const StoredRun run = RunsOf(name)[0];
    Executor net(MakeLoss(Mean(Square(model.symbol))), {.device = TestDevice(0), .inputs = DescriptionsOf(model, run)});
    net.SetParams(model.params, model.aux);
    for (const DataDesc& description : DescriptionsOf(model, run)) {
      net.SetInput(description.name, run.inputs.at(description.name));
    }
    net.Forward();
    const double before = net.Output(0).At(0);
    net.Backward();
    double slope = 0;
    for (auto& [parameter, value] : model.params) {
      const HostTensor gradient = net.Gradient(parameter);
      for (int64_t i = 0; i < value.elements(); ++i) {
        slope += gradient.At(i) * gradient.At(i);
        value.Set(i, value.At(i) - 1e-4 * gradient.At(i));
      }
    }
    net.SetParams(model.params, model.aux);
    net.Forward();
    EXPECT_NEAR(before - net.Output(0).At(0), 1e-4 * slope, 0.05 * 1e-4 * slope);
    EXPECT_GT(slope, 0);
  }
}

}  // namespace
}  // namespace bindery
