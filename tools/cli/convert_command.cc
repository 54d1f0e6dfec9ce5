// bindery convert: from one kind of file with parameters to another.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/data.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"
#include "tools/cli/run_options.h"
#include "train/quantize.h"
#include "train/weights/weights.h"

namespace bindery::cli {
namespace {

struct ConvertCommand {
  CLI::App* app = nullptr;
  std::string in, out, model, map;
  bool int8 = false;
  DataOptions data = {.on_validation = true};
  double part = 0.1;
  std::string activations = "uint8";
  double percentile = 100;

  // The values, and the graph, if there is one.
  Model Load() const {
    if (!model.empty()) {
      std::error_code none;
      if (in.ends_with(".ckpt") || std::filesystem::is_directory(in, none)) {
        throw UsageError("--model: a checkpoint has a graph; it is for files that have none");
      }
      const ModelOptions options{.model = model, .weights = in, .map = map};
      Model loaded = options.Load();
      options.CheckWeightsFit(loaded);
      return loaded;
    }
    Model loaded;
    if (IsWeightsFile(in)) {
      Weights weights = LoadWeights(in);
      loaded.params = std::move(weights.tensors);
      loaded.metadata = std::move(weights.metadata);
    } else {
      loaded = LoadAnyModel(in);
    }
    if (map.empty()) return loaded;
    if (!IsWeightsFile(out))
      throw UsageError("--map: a graph keeps the names that it has; convert to weights, or give --model");
    Weights renamed = RenamedBy(map, WeightsOf(std::move(loaded)));
    return {.params = std::move(renamed.tensors), .metadata = std::move(renamed.metadata)};
  }

  // Of a part of what a model would be trained on, so never of what it is tested on.
  TestData CalibrationData(const Model& loaded) const {
    DataOptions drawn = data;
    drawn.validation_part = part;
    const auto of_calibrate = [](const std::string& message) {
      constexpr std::string_view kData = "--data:";
      return message.starts_with(kData) ? "--calibrate:" + message.substr(kData.size()) : message;
    };
    try {
      return MakeTestData(drawn, AsClassifier(loaded), "\"" + in + "\"", /*predicting=*/true);
    } catch (const DataError& error) {
      throw DataError(of_calibrate(error.message()));
    } catch (const UsageError& error) {
      throw UsageError(of_calibrate(error.what()));
    }
  }

  Model ToIntegers(const Model& loaded) const {
    if (data.IsText() || VocabularySize(loaded) > 0) {
      throw UsageError("--int8: layers of models of text are not quantized");
    }
    TestData drawn = CalibrationData(loaded);
    const DType dtype = activations == "int8" ? DType::kInt8 : DType::kUInt8;
    return Quantized(loaded, *drawn.iter, {.activations = dtype, .percentile = percentile});
  }

  void CheckQuantization(bool to_model) const {
    if (int8 && !to_model) throw UsageError("--int8: OUT must be a model, which weights alone are not");
    if (int8 && !IsGiven(*app, {"--calibrate"})) {
      throw UsageError("--int8 needs --calibrate DATA: what the model was trained on, as train's --data");
    }
    for (const char* option : {"--calibrate", "--calibrate-part", "--activations", "--percentile"}) {
      if (!int8 && IsGiven(*app, {option}))
        throw UsageError(fmt::format("{} is about --int8, which is not given", option));
    }
    if (activations != "uint8" && activations != "int8") {
      throw UsageError(fmt::format("--activations: expected uint8 or int8, got \"{}\"", activations));
    }
  }

  int Run() const {
    constexpr std::string_view kModels[] = {".pb", ".prototxt", ".onnx"};
    const bool to_model = std::ranges::any_of(kModels, [&](std::string_view ending) { return out.ends_with(ending); });
    if (!to_model && !IsWeightsFile(out)) {
      throw UsageError(fmt::format(
          "OUT: expected a name that ends in .pb, .prototxt, .onnx, .safetensors or .npz, got \"{}\"", out));
    }
    CheckQuantization(to_model);
    CheckDifferent({{"IN", in}, {"OUT", out}});
    CheckOutputFile("OUT", out);
    Model loaded = Load();
    if (to_model && loaded.symbol.empty()) {
      throw UsageError(fmt::format("\"{}\" holds weights but no graph: name the model with --model", in));
    }
    if (int8) loaded = ToIntegers(loaded);
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
  sub->add_flag("--int8", c->int8,
                "layers that multiply integers of 8 bits, batch-norms folded into them (docs/int8.md)");
  sub->add_option_function<std::string>(
         "--calibrate",
         [c](const std::string& text) {
           text.ends_with(".prototxt") ? c->data.ReadFile(text) : void(c->data.data = text);
         },
         "with --int8: the data that tell what range layers' inputs have, as train's --data")
      ->type_name("DATA");
  AddNumber(sub, "--calibrate-part", &c->part, 0.0001, 0.99,
            "so much of the data to train on, drawn, is used for that");
  sub->add_option("--activations", c->activations, "with --int8: the type of layers' inputs, uint8 or int8")
      ->capture_default_str();
  AddNumber(sub, "--percentile", &c->percentile, 50.0001, 100,
            "with --int8: percent of these values within the range; the rest, half at either end, is clipped");
  c->app = sub;
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
