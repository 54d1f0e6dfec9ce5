#include "train/extensions/snapshots.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/extensions/folder_of.h"
#include "train/finite.h"
#include "train/loop/loop.h"

namespace bindery {
namespace {

class Saver {
 public:
  explicit Saver(SnapshotOptions options) : options_(std::move(options)), store_(options_.folder, options_.keep) {}

  void Begin(Loop& loop) {
    if (options_.autoload && !begun_) Load(loop);
    begun_ = true;
  }
  void Save(Loop& loop) {
    // What could not load what is there must not put itself in its place.
    if (!begun_ || saved_ == PlaceOf(loop)) return;
    const Checkpoint checkpoint = loop.ToCheckpoint();
    CheckFinite(checkpoint);
    const std::string path = store_.Save(checkpoint);
    saved_ = PlaceOf(loop);
    if (options_.on_save) options_.on_save(path);
  }

 private:
  // The same step may be within an epoch and at its end.
  using Place = std::pair<int64_t, int64_t>;
  static Place PlaceOf(const Loop& loop) { return {loop.now().iteration, loop.now().epoch}; }

  void Load(Loop& loop) {
    std::optional<Checkpoint> newest = store_.LoadNewest();
    if (!newest) {
      LogLine(LogLevel::kInfo, fmt::format("there is no checkpoint in \"{}\" yet: starting anew", options_.folder));
      return;
    }
    loop.Restore(std::move(*newest));
    saved_ = PlaceOf(loop);
    LogLine(LogLevel::kInfo,
            fmt::format("going on after step {}, in epoch {}", loop.now().iteration, loop.now().epoch + 1));
  }

  SnapshotOptions options_;
  CheckpointStore store_;
  std::optional<Place> saved_;
  bool begun_ = false;  // a second run of the loop goes on where it is
};

}  // namespace

Extension Snapshot(SnapshotOptions options) {
  const Trigger trigger = options.trigger;
  const bool on_error = options.on_error;
  const auto saver = std::make_shared<Saver>(std::move(options));
  Extension extension{.name = "snapshot",
                      .trigger = trigger,
                      .priority = kSaves,
                      .run = [saver](Loop& loop) { saver->Save(loop); },
                      .begin = [saver](Loop& loop) { saver->Begin(loop); },
                      .end =
                          [saver](Loop& loop) {
                            if (!loop.failed()) saver->Save(loop);
                          }};
  if (on_error) extension.on_error = [saver](Loop& loop, const std::exception_ptr&) { saver->Save(loop); };
  return extension;
}

Extension BestModel(std::string path, const std::string& value, const std::string& model) {
  return {.name = "best model",
          .trigger = LargerIsBetter(value) ? AtMaximum(value) : AtMinimum(value),
          .priority = kReads,
          .run = [=](Loop& loop) { SaveModel(loop.learner().ToModel(model), path); },
          .begin = [=](Loop&) { MakeFolderOf(path); }};
}

}  // namespace bindery
