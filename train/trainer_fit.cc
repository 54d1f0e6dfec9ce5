// Trainer: Fit, a loop whose learner is the trainer.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "executor/tuning.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/checkpoint/folder_lock.h"
#include "train/checkpoint/run_info.h"
#include "train/extensions/snapshots.h"
#include "train/finite.h"
#include "train/loop/loop.h"
#include "train/loop/monitor.h"
#include "train/metrics/training_metric.h"
#include "train/trainer.h"

namespace bindery {

bool Trainer::IsBest(const std::string& set, const std::string& metric, double value, bool larger) {
  const std::string what = set + " " + metric;
  const auto best = best_ && best_->first == what ? std::optional(best_->second) : std::nullopt;
  if (!IsBetter(value, best, larger)) return false;
  best_ = {what, value};
  return true;
}

// An update is a batch that was pushed; where it was the last one of its sweep, all that ends an epoch, too.
class Trainer::Fitting final : public Learner {
 public:
  Fitting(Trainer* trainer, DataIter* train, const FitOptions& options)
      : trainer_(*trainer), train_(*train), watched_(Watched(trainer->metric_->Get(), options.watch)),
        feed_(trainer->BindFor(*train, true)), options_(options) {
    KeepJudging();
  }

  void Update() override {
    new_epoch_ = false;
    while (!trainer_.IsAskedToStop()) {
      if (!begun_) BeginEpoch();
      if (const BatchPtr batch = Next()) {
        if (Take(batch) && !AtEndOfEpoch()) return;
        continue;
      }
      if (!trainer_.SettleAll(&train_)) continue;  // steps that overflow at the end give batches back
      EndEpoch();
      return;
    }
  }

  Moment now() const override {
    Moment moment{.iteration = trainer_.updater_->step(), .epoch = trainer_.epoch_, .is_new_epoch = new_epoch_};
    // Until its end has been dealt with, an epoch is not done, whatever was trained on.
    constexpr double kAlmost = 1 - 1e-6;
    const bool by_batches = options_.epoch_batches > 0;
    const auto trained = static_cast<double>(trainer_.batch_in_epoch_ * (by_batches ? 1 : BatchSize()));
    const auto all = static_cast<double>(by_batches ? options_.epoch_batches : train_.samples());
    const double part = trained > 0 ? trained / all : 0;
    moment.epoch_detail = static_cast<double>(trainer_.epoch_) + std::min(part, kAlmost);
    return moment;
  }

  void Observe(Observation* observation) override {
    for (const auto& [metric, value] : new_epoch_ ? report_.train : trainer_.metric_->Get()) {
      // Of the first steps of an epoch, which are in flight still, there is none.
      if (new_epoch_ || !std::isnan(value)) observation->Report("train/" + metric, value);
    }
    if (new_epoch_) observation->Report("validation", report_.validation);
    const Updater& updater = *trainer_.updater_;  // whose schedule is in the next epoch already
    observation->Report("train/learning-rate",
                        new_epoch_ ? report_.learning_rate : updater.LearningRateOf(updater.step()));
  }

  Checkpoint ToCheckpoint() override {
    Checkpoint checkpoint = trainer_.ToCheckpoint(&train_);
    if (options_.keep_best) SayWhetherBest(trainer_.best_step_ == checkpoint.step, &checkpoint.info);
    return checkpoint;
  }
  void Restore(const Checkpoint& checkpoint) override {
    trainer_.Restore(checkpoint, &train_);
    KeepJudging();
  }
  std::vector<std::string> model_names() const override { return {kMain}; }
  Model ToModel(const std::string& name) const override {
    CheckName(name);
    return trainer_.options_.use_average ? trainer_.ToAveragedModel() : trainer_.ToModel();
  }
  Updater& updater(const std::string& name) override {
    CheckName(name);
    return *trainer_.updater_;
  }

  const EpochReport& report() const { return report_; }  // of the last epoch

 private:
  static constexpr const char* kMain = "main";
  static void CheckName(const std::string& name) {
    if (name != kMain) Throw("a trainer has one model, \"{}\"; there is no \"{}\"", kMain, name);
  }

  // The metric's name; empty: there are none.
  static std::string Watched(const NamedValues& metrics, const std::string& watch) {
    std::vector<std::string> names;
    for (const auto& [name, value] : metrics) names.push_back(name);
    if (watch.empty()) return names.empty() ? "" : names[0];
    if (std::ranges::find(names, watch) != names.end()) return watch;
    Throw("watch: there is no metric \"{}\"; there {}", watch,
          names.empty() ? "are none" : fmt::format("{} {}", names.size() == 1 ? "is" : "are", fmt::join(names, ", ")));
  }
  const char* JudgedSet() const { return options_.validation ? "validation" : "training"; }
  std::string Judged() const { return fmt::format("{} {}", JudgedSet(), watched_); }

  // Where the run so far, in this program or another, was judged by something else, what was best by that says nothing
  // of what is to come.
  void KeepJudging() {
    if (watched_.empty() || !trainer_.best_ || trainer_.best_->first == Judged()) return;
    if (trainer_.epoch_ >= options_.epochs) return;  // nothing is left to be judged
    LogLine(LogLevel::kWarning, fmt::format("epochs so far were judged by {}, the best of which had {:.6g}; this run "
                                            "goes by {}: which is the best begins anew",
                                            trainer_.best_->first, trainer_.best_->second, Judged()));
    trainer_.best_.reset();
    trainer_.best_step_.reset();
    trainer_.updater_->JudgeAnew();
  }

  // Was the last batch that was taken the last of an epoch? One that ends a sweep with samples that were kept for it, and
  // begins the next with others, is not. Where samples are kept, the end shows when no batch comes.
  bool AtEndOfEpoch() const {
    if (trainer_.batch_in_epoch_ == 0) return false;
    if (options_.epoch_batches > 0) return trainer_.batch_in_epoch_ >= options_.epoch_batches;
    const bool goes_on = !train_.repeats() && train_.epoch_detail() > static_cast<double>(train_.epoch());
    return train_.is_new_epoch() && !goes_on;
  }

  BatchPtr Next() {
    if ((train_.repeats() || options_.epoch_batches > 0) && AtEndOfEpoch()) return nullptr;
    BatchPtr batch = feed_.Arrange(train_.Next());
    if (batch || options_.epoch_batches == 0) return batch;
    train_.Reset();  // the epoch goes on in the next sweep
    return feed_.Arrange(train_.Next());
  }

  void BeginEpoch() {
    begun_ = true;
    start_ = std::chrono::steady_clock::now();
    if (trainer_.batch_in_epoch_ == 0) trainer_.metric_->Reset();
    before_ = trainer_.batch_in_epoch_ * BatchSize();
    trainer_.samples_ = 0;
  }

  // Pushes a step. A watched one is waited for; what it failed by is told where it is settled, as of any other.
  bool Push(const BatchPtr& batch) {
    Monitor* const monitor = options_.monitor;
    ExecutorGroup* const group = trainer_.group_.get();
    if (!monitor || !monitor->Begin(group, trainer_.updater_->step() + 1)) return trainer_.Step(batch, &train_);
    bool pushed = false;
    try {
      pushed = trainer_.Step(batch, &train_);
      if (!pushed) monitor->Cancel(group);
    } catch (...) {
      monitor->Cancel(group);
      throw;
    }
    try {
      if (pushed) monitor->End(group);
    } catch (const Error&) {
      trainer_.SettleAll(&train_);
      throw;
    }
    return pushed;
  }

  bool Take(const BatchPtr& batch) {
    ++trainer_.batch_in_epoch_;  // whatever becomes of it: the iterator is past it
    if (!Push(batch)) return false;
    if (!options_.on_batch) return true;
    const int64_t step = trainer_.updater_->step();
    options_.on_batch({.epoch = trainer_.epoch_,
                       .batch = trainer_.batch_in_epoch_,
                       .batches = BatchesOfEpoch(),
                       .step = step,
                       .samples = before_ + trainer_.samples_ * train_.parts(),
                       .learning_rate = trainer_.updater_->LearningRateOf(step),
                       .seconds = SecondsSince(start_),
                       .metric = trainer_.metric_.get()});
    return true;
  }

  int64_t BatchesOfEpoch() const {
    if (options_.epoch_batches > 0) return options_.epoch_batches;
    return CeilDiv(train_.samples(), BatchSize());
  }
  int64_t BatchSize() const { return train_.batch_size() * train_.parts(); }  // of all processes

  void EndEpoch() {
    if (trainer_.batch_in_epoch_ == 0) Throw<DataError>("the training data have no batch");
    if (!train_.repeats() && options_.epoch_batches == 0) train_.Reset();
    Updater& updater = *trainer_.updater_;
    trainer_.SumOverProcesses(trainer_.metric_.get());
    trainer_.ShareValues(/*merge_statistics=*/true, trainer_.group_.get());
    report_ = {.epoch = trainer_.epoch_,
               .step = updater.step(),
               .samples = trainer_.SamplesOfAll(),
               .seconds = SecondsSince(start_),
               .train = trainer_.metric_->Get()};
    report_.samples_per_second = static_cast<double>(report_.samples) / report_.seconds;
    report_.learning_rate = updater.LearningRateOf(updater.step());
    updater.NewEpoch();
    ++trainer_.epoch_;
    trainer_.batch_in_epoch_ = 0;
    begun_ = false;
    new_epoch_ = true;
    if (options_.validation) {
      report_.validation = trainer_.Score(*options_.validation);
      trainer_.TakeOfFirst(&report_.validation);
    }
    const NamedValues& judged = options_.validation ? report_.validation : report_.train;
    const auto value = std::ranges::find(judged, watched_, &NamedValues::value_type::first);
    if (value == judged.end()) return;
    const bool larger = LargerIsBetter(watched_, options_.better);
    updater.Judge(value->second, larger);
    report_.best = trainer_.IsBest(JudgedSet(), watched_, value->second, larger);
    if (report_.best) trainer_.best_step_ = updater.step();
  }

  Trainer& trainer_;
  DataIter& train_;
  const std::string watched_;
  const Feed feed_;
  const FitOptions& options_;
  EpochReport report_;
  bool begun_ = false, new_epoch_ = false;
  int64_t before_ = 0;  // samples of the epoch that were trained on before
  std::chrono::steady_clock::time_point start_ = {};
};

void Trainer::Resume(const FitOptions& options, Loop* loop) {
  if (options.checkpoints.empty()) Throw("resume needs a folder of checkpoints");
  std::optional<Checkpoint> newest;
  if (IsFirst()) newest = CheckpointStore(options.checkpoints, options.keep).LoadNewest();
  newest = FromFirst(std::move(newest));
  if (!newest) {
    // Somebody asked for it: a name that is misspelled looks the same.
    LogLine(LogLevel::kWarning,
            fmt::format("resume: there is no checkpoint in \"{}\" yet: starting anew", options.checkpoints));
    return;
  }
  loop->Restore(std::move(*newest));
  LogLine(LogLevel::kInfo, epoch_ >= options.epochs
                               ? fmt::format("the checkpoint of step {} has {} epochs already: nothing is left to "
                                             "train",
                                             updater_->step(), epoch_)
                               : fmt::format("going on after step {}, in epoch {}", updater_->step(), epoch_ + 1));
}

FitResult Trainer::Fit(DataIter& train, const FitOptions& options) {
  return TellingOthers([&] { return FitAlone(train, options); });
}

FitResult Trainer::FitAlone(DataIter& train, const FitOptions& options) {
  for (const auto& [name, count] :
       {std::pair("epochs", options.epochs), std::pair("epoch_batches", options.epoch_batches),
        std::pair("checkpoint_every", options.checkpoint_every)}) {
    if (count < 0) Throw("{}: expected 0 or more, got {}", name, count);
  }
  if (options.keep_best && options.checkpoints.empty()) Throw("keep_best needs a folder of checkpoints");
  const FolderLock lock = IsFirst() && !options.checkpoints.empty() ? FolderLock(options.checkpoints) : FolderLock();
  if (options_.tuning != Tuning::kOff && options.resume && !options.checkpoints.empty()) {  // before anything is bound
    if (const auto info = CheckpointStore(options.checkpoints, options.keep).NewestInfo()) {
      AdoptTuningChoices(ValueOf(*info, kTuningChoices));
    }
  }
  if (IsFirst() && !options.checkpoints.empty() && !options.resume && !options.overwrite) {
    const int64_t step = updater_ ? updater_->step() : pending_ ? pending_->step : 0;
    if (const auto ahead = CheckpointStore(options.checkpoints, options.keep).AheadOf(step)) {
      Throw<CheckpointError>(
          "\"{}\" is of an earlier run: .resume goes on with it, .overwrite replaces it, and another "
          "folder keeps it",
          *ahead);
    }
  }
  Fitting fitting(this, &train, options);
  CheckSameData(train);
  TakeMetadata(train);  // of data that fit
  Trigger stop([this, &options](const Moment& moment, const Observation&, const Trigger::Memory&) {
    return moment.epoch >= options.epochs || IsAskedToStop();
  });
  Loop loop(&fitting, options.stop ? Either(*options.stop, stop) : stop);
  for (const Extension& extension : options.extensions) loop.Extend(extension);
  if (options.resume) Resume(options, &loop);
  FitResult result;
  if (IsFirst() && !options.checkpoints.empty() && epoch_ < options.epochs) {
    const Trigger due = options.checkpoint_every > 0 ? EveryIterations(options.checkpoint_every) : Never();
    Trigger asked(
        [this, due, &options](const Moment& moment, const Observation& values, const Trigger::Memory& memory) {
          const bool now = save_.exchange(false, std::memory_order_relaxed) || due.rule()(moment, values, memory);
          const bool each_epoch = options.checkpoint_every == 0 || options.keep_best;
          return now || (moment.is_new_epoch && (each_epoch || moment.epoch == options.epochs));
        });
    loop.Extend(Snapshot({.folder = options.checkpoints,
                          .trigger = asked,
                          .keep = options.keep,
                          .autoload = false,
                          .on_save = [&](const std::string& path) { result.checkpoint = path; }}));
  }
  if (options.on_epoch) {
    const auto is_new_epoch = [](const Moment& moment, const Observation&, const Trigger::Memory&) {
      return moment.is_new_epoch;
    };
    loop.Extend({.name = "on_epoch", .trigger = Trigger(is_new_epoch), .priority = kSaves - 1, .run = [&](Loop&) {
                   options.on_epoch(fitting.report());
                 }});
  }
  const int64_t begun = epoch_;
  loop.Run();
  // Not before: a stop that was requested while binding counts.
  const bool told = IsAskedToStop();
  const bool asked = stop_.exchange(false, std::memory_order_relaxed) || told || loop.stopped();
  result.stopped = asked && epoch_ < options.epochs;
  if (options.checkpoints.empty() || !IsFirst()) CheckFinite(ToCheckpoint(&train));
  if (epoch_ > begun) {
    result.train = fitting.report().train;
    result.validation = fitting.report().validation;
  } else if (!result.stopped && options.validation) {
    // Nothing was left to train: the values are those of the last epoch all the same.
    result.validation = Score(*options.validation);
  }
  if (InProcesses()) {
    updater_->KeepState();          // from now on each may save alone
    options_.processes->Barrier();  // whoever has ended otherwise than the others is found out
    updater_->ForgetStop();
  }
  result.epochs = epoch_;
  result.steps = updater_->step();
  return result;
}

}  // namespace bindery
