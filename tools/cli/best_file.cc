#include "tools/cli/best_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "base/files.h"
#include "base/log.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/loop/loop.h"

namespace bindery::cli {
namespace {

namespace fs = std::filesystem;

// As the trainer saves it: with averages in place of the values, if it uses them.
Model ModelIn(Checkpoint checkpoint, bool use_average) {
  Model model = std::move(checkpoint.model);
  for (auto& [name, value] : model.params) {
    const auto average = checkpoint.optimizer_state.find(name + ":average");
    if (use_average && average != checkpoint.optimizer_state.end()) value = std::move(average->second);
  }
  return model;
}

}  // namespace

void BestFile::Write(const Model& model) {
  SaveModel(model, path_);
  file_ = fs::absolute(path_);
}

void BestFile::Begin(const Trainer& trainer) {
  MakeFolderOf(path_);
  best_ = trainer.BestSoFar();
  std::error_code error;
  if (file_ == fs::absolute(path_) && fs::exists(path_, error)) return;
  file_.clear();
  if (best_.empty()) return;
  std::optional<Checkpoint> kept;
  if (!checkpoints_.empty()) kept = LoadBest(CheckpointStore(checkpoints_));
  // A run that keeps it no more has had a better one since, perhaps.
  if (kept && kept->info[kBestValue] == best_) {
    Write(ModelIn(std::move(*kept), trainer.options().use_average));
    return;
  }
  LogLine(
      LogLevel::kWarning,
      fmt::format("\"{}\" is written when an epoch is better than the best so far, {}: the model of that was not kept",
                  path_, best_));
}

Extension BestFile::Writer(const Trainer* trainer) {
  const auto is_best = [this, trainer](const Moment& moment, const Observation&, const Trigger::Memory&) {
    return moment.is_new_epoch && trainer->BestSoFar() != best_;
  };
  return {.name = "best file",
          .trigger = Trigger(is_best),
          .priority = kReads,
          .run =
              [this, trainer](Loop& loop) {
                Write(loop.learner().ToModel("main"));
                best_ = trainer->BestSoFar();
              },
          .begin = [this, trainer](Loop&) { Begin(*trainer); },
          .serialize = [this](Archive* archive) { archive->Text("file", &file_); }};
}

}  // namespace bindery::cli
