#include "tools/cli/options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/names.h"
#include "base/split_text.h"
#include "engine/backend.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/run_options.h"
#include "train/call_text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/open.h"
#include "train/label_scaling.h"
#include "train/weights/weights.h"
#include "train/zoo.h"

namespace bindery::cli {
namespace {

bool Exists(const std::string& path) {
  std::error_code error;  // a name too long, a circle of links: no such file
  return std::filesystem::exists(path, error);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// The values and metadata in a file, by the names that rules give them.
Model LoadValues(const std::string& path, const std::string& map) {
  if (!IsWeightsFile(path) && map.empty()) return LoadAnyModel(path);
  Weights weights = RenamedBy(map, IsWeightsFile(path) ? LoadWeights(path) : WeightsOf(LoadAnyModel(path)));
  return {.params = std::move(weights.tensors), .metadata = std::move(weights.metadata)};
}

// The folder that a file of this name is in.
std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Throws DataError if no file can be made in the folder.
void CheckWritable(const std::string& option, const std::string& folder) {
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    Throw<DataError>("{}: cannot write in \"{}\": {}", option, folder, std::generic_category().message(errno));
  }
}

}  // namespace

Model LoadAnyModel(const std::string& path) {
  if (path.ends_with(".ckpt")) return ModelIn(LoadCheckpoint(path));
  if (!IsFolder(path)) return LoadModel(path);
  std::optional<Checkpoint> newest = CheckpointStore(path).LoadNewest();
  if (!newest) Throw<DataError>("\"{}\" is a folder without a checkpoint", path);
  return ModelIn(std::move(*newest));
}

Weights RenamedBy(const std::string& map, Weights weights) {
  std::vector<std::string> rules;
  for (const std::string_view rule : SplitText(map, ';')) {
    const size_t first = rule.find_first_not_of(' ');
    if (first != std::string_view::npos) rules.emplace_back(rule.substr(first));
  }
  try {
    return MapNames(std::move(weights), rules);
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& e) {
    throw UsageError("--map: " + e.message());
  }
}

void ModelOptions::AddTo(CLI::App* app) {
  app->add_option(
      "--model", model,
      fmt::format("a model by name ({}; settings may follow, \"gpt(layers=2, context=128)\") or a file (.pb, "
                  ".prototxt, .onnx, MXNet's -symbol.json, a .ckpt or a folder of these)",
                  fmt::join(ModelNames(), ", ")));
  app->add_option("--weights", weights,
                  "a file whose parameters are used: as of --model, or .safetensors or .npz with --model");
  app->add_option("--map", map,
                  "how names in --weights become the model's: \"EXPRESSION=NAME; ...\", \"backbone\\.(.*)=\\1; "
                  "head.*=\"; no name leaves them out");
}

void ModelOptions::AddVariantsTo(CLI::App* app) {
  AddNumber(app, "--dropout", &dropout, 0, 0.99, "dropout before the last layer of a model by name");
  app->add_flag("--sync-batch-norm", sync_batch_norm, "normalise over all devices (models by name)");
}

std::string ModelOptions::Name() const {
  if (!model.empty()) return model;
  return weights.empty() ? "lenet" : weights;
}

void ModelOptions::CheckWeightsFit(const Model& loaded) const {
  if (!IsTuned()) return;
  const std::string source = fmt::format("\"{}\"", weights);
  Weights names;
  for (const HostTensorMap* values : {&loaded.params, &loaded.aux}) {
    for (const auto& [name, value] : *values) names.tensors[name] = HostTensor();
  }
  ModelOf(loaded.symbol, std::move(names), source);
  CheckShapes(loaded, source);
}

bool ModelOptions::IsByName() const { return IsModelName(Name()); }

// It is the first setting, which may stand without its name.
int64_t ModelOptions::StatedClasses() const {
  if (!IsByName()) return 0;
  const CallText call("model", Name());
  return call.Integer("classes").value_or(call.Integer("").value_or(0));
}

bool ModelOptions::IsTuned() const { return !weights.empty() && Name() != weights; }

void ModelOptions::CheckKept(const std::vector<std::pair<std::string, std::string>>& outputs) const {
  for (const auto& output : outputs) {
    CheckDifferent({{"--model", model.empty() || IsByName() ? "" : model}, output});
    CheckDifferent({{"--weights", weights}, output});
  }
}

Model ModelOptions::Load(const Shape& input, int64_t classes) const {
  const std::string name = Name();
  const bool given = !weights.empty() && (name != weights || !map.empty());
  if (!map.empty() && weights.empty()) throw UsageError("--map is for the names in --weights");
  if (IsWeightsFile(name)) {
    throw UsageError(fmt::format("\"{}\" holds weights but no graph: name the model with --model", name));
  }
  Model loaded, from;
  if (given) from = LoadValues(weights, map);
  if (IsByName()) {
    try {
      const int64_t known = classes > 0 ? classes : VocabularySize(from);
      loaded.symbol = ModelByName(name, {.input = input,
                                         .num_classes = StatedClasses() > 0 ? 0 : known,
                                         .dropout = dropout,
                                         .sync_batch_norm = sync_batch_norm});
    } catch (const ModelError&) {
      throw;
    } catch (const Error& e) {
      throw UsageError("--model: " + e.message());
    }
  } else if (dropout != 0 || sync_batch_norm) {
    throw UsageError(fmt::format("{} is for models by name ({}); \"{}\" stays as its file says",
                                 dropout != 0 ? "--dropout" : "--sync-batch-norm", fmt::join(ModelNames(), ", "),
                                 name));
  } else if (!model.empty() && !Exists(model)) {
    throw UsageError(
        fmt::format("--model: \"{}\" is neither a model by name nor a file{}", model, NameHint(model, ModelNames())));
  } else {
    loaded = LoadAnyModel(name);
    if (name.ends_with(".onnx") || name.ends_with(".json")) loaded = AsClassifier(std::move(loaded));
    if (loaded.symbol.empty())
      Throw<ModelError>("\"{}\" holds parameters but no graph: name the model with --model", name);
  }
  const bool says = !IsWeightsFile(weights) || !from.metadata.empty();
  if (given && (IsWeightsFile(weights) || !map.empty())) {
    from = ModelOf(loaded.symbol, WeightsOf(std::move(from)), fmt::format("\"{}\"", weights));
  }
  if (given) {
    loaded.params = std::move(from.params);
    loaded.aux = std::move(from.aux);
    // What the values were trained on counts, not what those were that they take the place of: nothing, too, unless
    // the file has no place to say it.
    if (says) SetPreprocessing(Preprocessing(from), &loaded);
    loaded.metadata.merge(from.metadata);
    ScaleLabelsAsKept(&loaded);
    if (!IsComplete(loaded)) loaded.metadata.erase(kClassesKey);
  }
  return loaded;
}

void DeviceOptions::AddTo(CLI::App* app) {
  app->add_option("--device,--devices", devices, "devices, e.g. cpu:0,cpu:1; each has a worker of its own")
      ->capture_default_str();
  AddNumbers(app, "--workload", &workload, 0, 1e9, "share of each device, e.g. 2,1; default equal");
  AddNumber(app, "--threads", &threads, 0, 1024, "threads per device; 0: the cores, shared out");
}

void DeviceOptions::AddTimeoutTo(CLI::App* app) {
  AddNumber(app, "--device-timeout", &timeout, 0, 1'000'000,
            "seconds after which a device that is still at the same operator is given up; 0: none");
}

std::shared_ptr<Engine> DeviceOptions::MakeEngine() const {
  // The error is logged; whatever runs now would wait for the device when it ends.
  const auto leave = [](const HangError& error) {
    SayIfSilent(error.message());
    Say("bindery: the run ends here, without that device; checkpoints are as they were\n");
    std::_Exit(kDevice);
  };
  return MakeThreadedEngine({.hang_milliseconds = timeout * 1000, .on_hang = leave});
}

std::vector<Device> DeviceOptions::Devices() const {
  std::vector<Device> parsed;
  try {
    parsed = ParseDevices(devices);
  } catch (const Error& e) {
    throw UsageError("--device: " + e.message());
  }
  for (const Device& device : parsed) {
    if (device.kind == DeviceKind::kSim) Throw<DeviceError>("{} is for tests; cpu:0, cpu:1 ... compute", device);
    Backend::Of(device);
  }
  if (parsed.size() > Updater::kMaxDevices) {
    throw UsageError(fmt::format("--device: at most {} devices, got {}", Updater::kMaxDevices, parsed.size()));
  }
  if (!workload.empty() && workload.size() != parsed.size()) {
    throw UsageError(
        fmt::format("--workload: expected {} numbers, one per device, got {}", parsed.size(), workload.size()));
  }
  if (!workload.empty() && std::all_of(workload.begin(), workload.end(), [](double w) { return w == 0; })) {
    throw UsageError("--workload: not all may be 0");
  }
  return parsed;
}

void CheckDifferent(const std::vector<std::pair<std::string, std::string>>& outputs) {
  std::vector<std::pair<std::string, std::filesystem::path>> seen;
  for (const auto& [option, path] : outputs) {
    if (path.empty()) continue;
    std::error_code error;  // what cannot be found is compared as it is written
    std::filesystem::path whole = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
    if (error) whole = std::filesystem::path(path).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();  // "folder/"
    for (const auto& [other, place] : seen) {
      if (place == whole) throw UsageError(fmt::format("{} and {} are the same: \"{}\"", other, option, path));
    }
    seen.emplace_back(option, whole);
  }
}

void CheckOutputFile(const std::string& option, const std::string& path) {
  const std::string folder = FolderOf(path);
  if (!IsFolder(folder)) Throw<DataError>("{}: there is no folder \"{}\"", option, folder);
  std::error_code error;
  if (Exists(path) && !std::filesystem::is_regular_file(path, error)) {
    Throw<DataError>("{}: \"{}\" is there and is not a file", option, path);
  }
  CheckWritable(option, folder);
}

void MakeOutputFolder(const std::string& option, const std::string& path) {
  try {
    MakeFolder(path);
  } catch (const DataError& error) {
    Throw<DataError>("{}: {}", option, error.message());
  }
  CheckWritable(option, path);
}

FolderLock LockFolder(const std::string& option, const std::string& path) {
  try {
    return FolderLock(path);
  } catch (const DataError& error) {
    Throw<DataError>("{}: {}", option, error.message());
  }
}

}  // namespace bindery::cli
