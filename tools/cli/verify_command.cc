// bindery verify: are files of ours whole?
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_lines.h"
#include "tools/cli/options.h"
#include "tools/cli/solver.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/data/data_description.h"
#include "train/data/open.h"
#include "train/data/tables/npy.h"
#include "train/events/event_reader.h"
#include "train/finite.h"
#include "train/weights/weights.h"

namespace bindery::cli {
namespace {

// What a file is, as columns of a line: names and values.
using Facts = nlohmann::ordered_json;

int64_t ElementsOf(const HostTensorMap& values) {
  int64_t elements = 0;
  for (const auto& [name, value] : values) elements += value.elements();
  return elements;
}

void CheckFinite(const HostTensorMap& values) {
  if (const std::string bad = FirstNotFinite(values); !bad.empty()) Throw<NumericError>("{}", bad);
}

// What it keeps of how the data were made that it was trained on.
void CheckPreprocessing(const Model& model) {
  CategoriesOfColumns(model);
  ScalingOfLabels(model);
  const auto columns = std::ssize(ScalingOfColumns(model).first);
  const std::optional<Shape> sample = model.symbol.empty() ? std::nullopt : SampleShape(model);
  if (columns == 0 || !sample || sample->Elements() == columns) return;
  Throw<DataError>("its preprocessing scales {} columns, but it takes samples of {}", columns, *sample);
}

void CheckModel(const Model& model, const std::string& path) {
  CheckFinite(model.params);
  CheckFinite(model.aux);
  CheckPreprocessing(model);
  if (model.symbol.empty()) return;
  // Names that are not the graph's, and shapes that are not.
  const Model named = ModelOf(model.symbol, WeightsOf(model), path);
  for (const auto& [name, value] : model.aux) {
    if (!named.aux.contains(name)) Throw<CheckpointError>("\"{}\" is no auxiliary state of the graph", name);
  }
  CheckShapes(model, path);
}

Facts FactsOf(const Model& model) {
  return {{"parameters", model.params.size()},
          {"elements", ElementsOf(model.params)},
          {"auxiliary", model.aux.size()},
          {"graph", !model.symbol.empty()}};
}

bool StartsWith(const std::string& path, std::string_view magic) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(magic.size(), '\0');
  return file.read(bytes.data(), std::ssize(bytes)) && bytes == magic;
}

// Lines of JSON, as --log and --json write them.
Facts VerifyLines(const std::string& path) {
  const std::string text = ReadFile(path);
  int64_t lines = 0;
  for (size_t begin = 0; begin < text.size(); ++lines) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) Throw<DataError>("\"{}\", line {}: cut off", path, lines + 1);
    const auto line = nlohmann::json::parse(text.begin() + static_cast<ptrdiff_t>(begin),
                                            text.begin() + static_cast<ptrdiff_t>(end), nullptr,
                                            /*allow_exceptions=*/false);
    if (!line.is_object()) Throw<DataError>("\"{}\", line {}: not an object of JSON", path, lines + 1);
    begin = end + 1;
  }
  return {{"kind", "log"}, {"lines", lines}};
}

// Of .json that is no graph: what --trace writes.
std::optional<Facts> VerifyTrace(const std::string& path) {
  const auto trace = nlohmann::json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) return std::nullopt;
  return Facts{{"kind", "trace"}, {"events", trace["traceEvents"].size()}};
}

// Of .prototxt that is no model: what --solver takes, or --data.
std::optional<Facts> VerifyDescription(const std::string& path) {
  try {
    return Facts{{"kind", "solver"}, {"options", ReadSolver(path).size()}};
  } catch (const std::exception&) {  // then it is none
  }
  try {
    ReadDataDescription(path);
    return Facts{{"kind", "description of data"}};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Facts VerifyModel(const std::string& path) {
  Facts facts = {{"kind", "model"}};
  try {
    const Model model = LoadModel(path);
    CheckModel(model, path);
    facts.update(FactsOf(model));
    return facts;
  } catch (const ModelError&) {
    const std::optional<Facts> others = path.ends_with(".prototxt") ? VerifyDescription(path) : std::nullopt;
    if (!others) throw;
    return *others;
  }
}

// Reads all of it. Throws what is wrong with it.
Facts Verify(const std::string& path) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  if (status.type() == std::filesystem::file_type::not_found) Throw<DataError>("No such file or directory");
  if (is_directory(status)) Throw<DataError>("it is a folder: give the files in it, as a shell does for {}/*", path);
  Facts facts;
  if (path.ends_with(".ckpt") || StartsWith(path, "BNDCKPT\n")) {
    const Checkpoint checkpoint = LoadCheckpoint(path);
    CheckModel(checkpoint.model, path);
    CheckFinite(checkpoint.optimizer_state);
    facts = {{"kind", "checkpoint"}, {"step", checkpoint.step}, {"epoch", checkpoint.epoch}};
    facts.update(FactsOf(checkpoint.model));
    facts["states"] = checkpoint.optimizer_state.size();
    if (KeepsBest(checkpoint.info)) facts["best"] = IsOfBestEpoch(checkpoint.info);
    return facts;
  }
  if (IsWeightsFile(path)) {
    const Weights weights = LoadWeights(path);
    CheckFinite(weights.tensors);
    CheckPreprocessing({.metadata = weights.metadata});
    return {{"kind", "weights"}, {"tensors", weights.tensors.size()}, {"elements", ElementsOf(weights.tensors)}};
  }
  if (path.ends_with(".npy")) {
    HostTensorMap array;
    array["array"] = ReadNpy(path);
    CheckFinite(array);
    return {{"kind", "array"}, {"tensors", 1}, {"elements", ElementsOf(array)}};
  }
  if (path.ends_with(".jsonl")) return VerifyLines(path);
  if (std::filesystem::path(path).filename().string().find("tfevents") != std::string::npos) {
    const EventCounts counts = CountEvents(path);
    return {{"kind", "event file"}, {"events", counts.events}, {"values", counts.values}, {"step", counts.step}};
  }
  constexpr std::string_view kModels[] = {".pb", ".prototxt", ".onnx", ".json", ".params"};
  if (std::ranges::none_of(kModels, [&](std::string_view ending) { return path.ends_with(ending); })) {
    Throw<DataError>(
        "neither a checkpoint nor, by its ending, a model (.pb, .prototxt, .onnx, .json, .params), weights "
        "(.safetensors, .npz), an array (.npy), a trace (.json) or a log (.jsonl, or \"tfevents\" in its name)");
  }
  if (path.ends_with(".json")) {
    if (const std::optional<Facts> trace = VerifyTrace(path)) return *trace;
  }
  return VerifyModel(path);
}

struct VerifyCommand {
  std::vector<std::string> files;
  bool json = false;

  // The status of the first file that is not good.
  int Run() const {
    int status = kOk;
    for (const std::string& path : files) {
      nlohmann::ordered_json line = {{"file", path}};
      try {
        line.update(Verify(path));
        line["good"] = true;
      } catch (const std::exception& e) {
        const int code = ExitCodeOf(e);
        if (status == kOk) status = code;
        line.update({{"good", false}, {"status", code}, {"message", e.what()}});
      }
      json ? PrintLine(line) : Print(line);
    }
    return status;
  }

 private:
  static void Print(const nlohmann::ordered_json& line) {
    const std::string path = line.at("file");
    if (!line.at("good")) {
      fmt::print("{}: damaged or unusable\n", path);
      return Say("bindery: \"{}\": {}\n", path, line.at("message").get<std::string>());
    }
    static const std::map<std::string, std::string> kNames = {{"auxiliary", "auxiliary states"},
                                                              {"states", "optimizer states"}};
    std::string text = fmt::format("{}: good; {}", path, line.at("kind").get<std::string>());
    for (const auto& [key, value] : line.items()) {
      const auto name = kNames.find(key);
      if (key == "graph") {
        if (value == true) text += ", a graph";
      } else if (key == "best") {
        if (value == true) text += ", of the best epoch so far";
      } else if (key == "step" || key == "epoch") {
        text += fmt::format(", {} {}", key, value.dump());
      } else if (value.is_number()) {
        text += fmt::format(", {} {}", value.dump(), name == kNames.end() ? key : name->second);
      }
    }
    fmt::print("{}\n", text);
  }
};

}  // namespace

void AddVerify(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<VerifyCommand>();
  CLI::App* sub = app->add_subcommand(
      "verify", "read checkpoints, models, weights and logs whole: checksums, structure, numbers that are not finite");
  sub->add_option("FILE", c->files,
                  "checkpoints, models, .safetensors, .npz, .npy, logs of a run: .jsonl, event files; traces; what "
                  "--solver and --data take as .prototxt")
      ->required();
  sub->add_flag("--json", c->json, "a line of JSON for each file on standard output");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
