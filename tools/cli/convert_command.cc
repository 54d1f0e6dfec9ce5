// bindery convert: from one kind of file with parameters to another.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "tools/cli/commands.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"
#include "train/checkpoint/checkpoint.h"
#include "train/weights/weights.h"

namespace bindery::cli {
namespace {

struct ConvertCommand {
  std::string in, out, model, map;

  // The values, and the graph, if there is one.
  Model Load() const {
    std::error_code none;
    const bool folder = std::filesystem::is_directory(in, none);
    if (!model.empty()) {
      if (folder || in.ends_with(".ckpt")) {
        throw UsageError("--model: a checkpoint has a graph; it is for files that have none");
      }
      const ModelOptions options{.model = model, .weights = in, .map = map};
      Model loaded = options.Load();
      options.CheckWeightsFit(loaded);
      return loaded;
    }
    Model loaded;
    if (folder) {
      std::optional<Checkpoint> newest = CheckpointStore(in).LoadNewest();
      if (!newest) Throw<DataError>("\"{}\" is a folder without a checkpoint", in);
      loaded = std::move(newest->model);
    } else if (in.ends_with(".ckpt")) {
      loaded = LoadCheckpoint(in).model;
    } else if (IsWeightsFile(in)) {
      Weights weights = LoadWeights(in);
      loaded.params = std::move(weights.tensors);
      loaded.metadata = std::move(weights.metadata);
    } else {
      loaded = LoadModel(in);
    }
    if (map.empty()) return loaded;
    if (!IsWeightsFile(out))
      throw UsageError("--map: a graph keeps the names that it has; convert to weights, or give --model");
    Weights renamed = RenamedBy(map, WeightsOf(std::move(loaded)));
    return {.params = std::move(renamed.tensors), .metadata = std::move(renamed.metadata)};
  }

  int Run() const {
    constexpr std::string_view kModels[] = {".pb", ".prototxt", ".onnx"};
    const bool to_model = std::ranges::any_of(kModels, [&](std::string_view ending) { return out.ends_with(ending); });
    if (!to_model && !IsWeightsFile(out)) {
      throw UsageError(fmt::format(
          "OUT: expected a name that ends in .pb, .prototxt, .onnx, .safetensors or .npz, got \"{}\"", out));
    }
    CheckDifferent({{"IN", in}, {"OUT", out}});
    CheckOutputFile("OUT", out);
    Model loaded = Load();
    if (to_model && loaded.symbol.empty()) {
      throw UsageError(fmt::format("\"{}\" holds weights but no graph: name the model with --model", in));
    }
    const size_t tensors = loaded.params.size() + loaded.aux.size();
    to_model ? SaveModel(loaded, out) : SaveWeights(WeightsOf(std::move(loaded)), out);
    fmt::print("{}: {} tensors\n", out, tensors);
    return kOk;
  }
};

}  // namespace

void AddConvert(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<ConvertCommand>();
  CLI::App* sub = app->add_subcommand("convert", "write a model, a checkpoint or weights as another kind of file");
  sub->add_option("IN", c->in, "a model, a checkpoint or a folder of such, .safetensors or .npz")->required();
  sub->add_option("OUT", c->out, "a model (.pb, .prototxt, .onnx) or weights (.safetensors, .npz)")->required();
  sub->add_option("--model", c->model, "the graph for weights that have none: a model by name or a file");
  sub->add_option("--map", c->map, "how names become others: as of train");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
