#include "tools/cli/options.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/names.h"
#include "symbol/graph.h"
#include "train/checkpoint.h"
#include "train/digits.h"
#include "train/zoo.h"

namespace bindery::cli {

void ModelOptions::AddTo(CLI::App* app) {
  app->add_option("--model", model, "a model by name (mlp, lenet, resnet20, resnet50) or a file (.pb, .prototxt)");
  app->add_option("--weights", weights, "a model file whose parameters are used");
  app->add_option("--dropout", dropout, "dropout before the last layer of a model by name")->check(CLI::Range(0.0, 0.99));
  app->add_flag("--sync-batch-norm", sync_batch_norm, "normalise over all devices (models by name)");
}

Model ModelOptions::Load() const {
  const std::vector<std::string> names = ModelNames();
  Model loaded;
  if (std::find(names.begin(), names.end(), Name()) != names.end()) {
    loaded.symbol = ModelByName(Name(), {.dropout = dropout, .sync_batch_norm = sync_batch_norm});
  } else if (std::filesystem::exists(Name())) {
    loaded = LoadModel(Name());
  } else {
    throw UsageError(fmt::format("--model: \"{}\" is neither a model by name nor a file{}", Name(), NameHint(Name(), names)));
  }
  if (!weights.empty()) {
    Model from = LoadModel(weights);
    loaded.params = std::move(from.params);
    loaded.aux = std::move(from.aux);
  }
  return loaded;
}

void DeviceOptions::AddTo(CLI::App* app) {
  app->add_option("--device,--devices", devices, "devices, e.g. cpu:0,cpu:1; each has a worker of its own")->capture_default_str();
  app->add_option("--workload", workload, "share of each device, e.g. 2,1; default equal")->delimiter(',');
  app->add_option("--threads", threads, "threads per device; default: the cores, shared out")->check(CLI::Range(0, 1024));
}

std::vector<Device> DeviceOptions::Devices() const {
  std::vector<Device> parsed;
  try {
    parsed = ParseDevices(devices);
  } catch (const Error& e) {
    throw UsageError("--device: " + e.message());
  }
  for (const Device& device : parsed) {
    if (device.kind != DeviceKind::kCpu) throw DeviceError(fmt::format("{} is not available in this build; cpu:0, cpu:1 ... are", device));
  }
  if (!workload.empty() && workload.size() != parsed.size()) {
    throw UsageError(fmt::format("--workload: expected {} numbers, one per device, got {}", parsed.size(), workload.size()));
  }
  for (const double w : workload) {
    if (!std::isfinite(w) || w < 0) throw UsageError("--workload: numbers must be >= 0");
  }
  if (!workload.empty() && std::all_of(workload.begin(), workload.end(), [](double w) { return w == 0; })) throw UsageError("--workload: not all may be 0");
  return parsed;
}

void DataOptions::AddTo(CLI::App* app) {
  app->add_option("--data", data, "a folder with IDX files as MNIST has them (plain or .gz), or \"digits\": drawn by the program")->capture_default_str();
  app->add_option("--train-digits", train_digits, "drawn digits to train on")->check(CLI::Range(int64_t{1}, int64_t{10'000'000}))->capture_default_str();
  app->add_option("--test-digits", test_digits, "drawn digits to test on, others than those trained on")->check(CLI::Range(int64_t{1}, int64_t{10'000'000}))->capture_default_str();
  app->add_option("--digits-seed", digits_seed, "seed of the drawing")->capture_default_str();
  app->add_option("--batch-size", batch_size, "samples per step, on all devices together")->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))->capture_default_str();
}

ImageSet DataOptions::Train() const {
  if (data == "digits") return DrawDigits(train_digits, digits_seed);
  if (!std::filesystem::is_directory(data)) throw DataError(fmt::format("--data: \"{}\" is not a folder", data));
  return MnistFolder(data).train;
}

ImageSet DataOptions::Test() const {
  // Far behind any training digits of the same seed.
  if (data == "digits") return DrawDigits(test_digits, digits_seed, int64_t{1} << 30);
  if (!std::filesystem::is_directory(data)) throw DataError(fmt::format("--data: \"{}\" is not a folder", data));
  return MnistFolder(data).test;
}

HostTensor FitImages(const HostTensor& images, const Shape& sample, const std::string& model) {
  const Shape& have = images.shape();   // (N, 1, rows, columns)
  if (sample == have.Erase(0)) return images;
  constexpr int64_t kMaxElements = int64_t{1} << 30;
  if (sample.rank() != 3 || sample[1] < have[2] || sample[2] < have[3] || have[0] * sample.Elements() > kMaxElements) {
    throw UsageError(fmt::format("--data: images of {} do not fit model \"{}\", which takes {}", have.Erase(0), model, sample));
  }
  const int64_t channels = sample[0], rows = sample[1], columns = sample[2];
  HostTensor fitted(DType::kFloat32, {have[0], channels, rows, columns});
  const int64_t top = (rows - have[2]) / 2, left = (columns - have[3]) / 2;
  const float* from = images.data<float>().data();
  float* to = fitted.data<float>().data();
  for (int64_t n = 0; n < have[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t y = 0; y < have[2]; ++y) {
        std::memcpy(to + ((n * channels + c) * rows + top + y) * columns + left, from + (n * have[2] + y) * have[3],
                    static_cast<size_t>(have[3]) * sizeof(float));
      }
    }
  }
  return fitted;
}

std::optional<Shape> SampleShape(const Model& model, const std::string& name) {
  const std::vector<std::string> names = ModelNames();
  if (std::find(names.begin(), names.end(), name) != names.end()) return ModelInputShape(name);
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    if (!node->is_variable() || node->name() != "data" || !node->declared_shape || node->declared_shape->rank() < 2) continue;
    const Shape sample = node->declared_shape->Erase(0);
    if (sample.IsKnown()) return sample;
  }
  return std::nullopt;
}

Model LoadTrained(const std::string& checkpoints, const ModelOptions& options) {
  if (!options.weights.empty()) return options.model.empty() ? LoadModel(options.weights) : options.Load();
  const std::optional<Checkpoint> newest = CheckpointStore(checkpoints).LoadNewest();
  if (!newest) throw UsageError(fmt::format("there is no checkpoint in \"{}\": train first (bindery train), or give --checkpoints or --weights", checkpoints));
  return newest->model;
}

}  // namespace bindery::cli
