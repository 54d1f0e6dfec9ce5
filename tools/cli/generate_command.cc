// bindery generate: text written by a trained model of text.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"
#include "train/generate.h"

namespace bindery::cli {
namespace {

struct GenerateCommand {
  ModelOptions model;
  CheckpointOptions checkpoints;
  GenerateOptions options;
  bool json = false;

  int Run() const {
    const LoadedModel trained = LoadTrained(checkpoints, model);
    Tell("{}\n", trained.source);
    const std::string text = GenerateText(trained.model, options);
    if (json) {
      fmt::print("{}\n", nlohmann::json{{"prompt", options.prompt}, {"text", text}}.dump());
    } else {
      fmt::print("{}{}\n", options.prompt, text);
    }
    return kOk;
  }
};

}  // namespace

void AddGenerate(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<GenerateCommand>();
  CLI::App* sub = app->add_subcommand("generate", "write text with a model that was trained on text");
  c->model.AddTo(sub);
  c->checkpoints.AddTo(sub);
  sub->add_option("--prompt", c->options.prompt, "what the text follows; default: a new line");
  AddNumber(sub, "--length", &c->options.characters, 0, 1'000'000, "characters to write");
  AddNumber(sub, "--temperature", &c->options.temperature, 0, 1000,
            "below 1: more of what is likely, above: less; 0: always the likeliest");
  AddNumber(sub, "--seed", &c->options.seed, 0, UINT64_MAX, "another seed writes another text");
  sub->add_flag("--json", c->json, "JSON on standard output");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
