#include "tools/cli/best_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "base/files.h"
#include "base/log.h"
#include "tools/cli/run_options.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/loop/loop.h"

namespace bindery::cli {
namespace {

namespace fs = std::filesystem;

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
  if (kept && kept->info[kBestValue] == best_) return Write(ModelIn(std::move(*kept)));
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
