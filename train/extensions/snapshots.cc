#include "train/extensions/snapshots.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "train/checkpoint/background_writer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder_lock.h"
#include "train/finite.h"
#include "train/loop/loop.h"

namespace bindery {
namespace {

class Saver {
 public:
  explicit Saver(SnapshotOptions options)
      : options_(std::move(options)), writer_(CheckpointStore(options_.folder, options_.keep)) {}

  void Begin(Loop& loop) {
    begun_ = false;
    lock_ = FolderLock(options_.folder);
    if (options_.autoload && !loaded_) Load(loop);
    loaded_ = begun_ = true;
  }
  // However the run ended: the last one is written, and the folder anybody's.
  void End(Loop& loop) {
    const FolderLock lock = std::exchange(lock_, {});
    if (!loop.failed()) Save(loop);
    Finish();
  }
  // At every moment: what has become of the last one?
  void Look() {
    Hear([&] { return writer_.Take(); });
  }
  void Save(Loop& loop) {
    // What could not load what is there, or is not alone there, must not put itself in its place.
    if (!begun_ || saved_ == PlaceOf(loop)) return;
    Finish();
    Checkpoint checkpoint = loop.ToCheckpoint();
    CheckFinite(checkpoint);
    writer_.Start(std::move(checkpoint));
    saved_ = PlaceOf(loop);
  }

 private:
  // The same step may be within an epoch and at its end.
  using Place = std::pair<int64_t, int64_t>;
  static Place PlaceOf(const Loop& loop) { return {loop.now().iteration, loop.now().epoch}; }

  // Waits for the last one.
  void Finish() {
    Hear([&] { return writer_.TakeWhenDone(); });
  }

  // Tells of the path; throws what the writing failed by: then nothing is saved.
  template <class F>
  void Hear(const F& take) {
    std::optional<std::string> path;
    try {
      path = take();
    } catch (...) {
      saved_.reset();
      throw;
    }
    if (path && options_.on_save) options_.on_save(*path);
  }

  void Load(Loop& loop) {
    std::optional<Checkpoint> newest = writer_.store().LoadNewest();
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
  FolderLock lock_;             // while a run is on
  std::optional<Place> saved_;  // or being written
  bool begun_ = false;          // the present run
  bool loaded_ = false;         // a second run of the loop goes on where it is
  BackgroundWriter writer_;
};

}  // namespace

Extension Snapshot(SnapshotOptions options) {
  const Trigger due = options.trigger;
  const bool on_error = options.on_error;
  const auto saver = std::make_shared<Saver>(std::move(options));
  // A trigger is asked at every moment: an error of the writer is thrown at the first one behind it.
  const Trigger trigger(
      [saver, due](const Moment& moment, const Observation& observation, const Trigger::Memory& memory) {
        saver->Look();
        return due.rule()(moment, observation, memory);
      });
  Extension extension{.name = "snapshot",
                      .trigger = trigger,
                      .priority = kSaves,
                      .run = [saver](Loop& loop) { saver->Save(loop); },
                      .begin = [saver](Loop& loop) { saver->Begin(loop); },
                      .end = [saver](Loop& loop) { saver->End(loop); }};
  if (on_error) extension.on_error = [saver](Loop& loop, const std::exception_ptr&) { saver->Save(loop); };
  return extension;
}

Extension BestModel(std::string path, const std::string& value, const std::string& model, Better better,
                    Trigger check) {
  CheckModelName(path);
  return {.name = "best model",
          .trigger =
              LargerIsBetter(value, better) ? AtMaximum(value, std::move(check)) : AtMinimum(value, std::move(check)),
          .priority = kReads,
          .run = [=](Loop& loop) { SaveModel(loop.learner().ToModel(model), path); },
          .begin = [=](Loop&) { MakeFolderOf(path); }};
}

}  // namespace bindery
