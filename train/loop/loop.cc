#include "train/loop/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace bindery {
namespace {

// In a checkpoint: what is the loop's, and what stands in front of an extension's name.
constexpr const char* kLoop = "loop";
const std::string kExtension = "extension:";

std::string TextOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of no type that is known";
  }
}

}  // namespace

Loop::Loop(Learner* learner, Trigger stop) : learner_(learner), stop_(std::move(stop)), now_(learner->now()) {
  learner_->Connect(this);
}

void Loop::Extend(Extension extension) {
  if (running_) Throw("extension \"{}\" comes too late: the loop is running", extension.name);
  if (!extension.run && !extension.begin && !extension.on_error && !extension.end) {
    Throw("extension \"{}\" does nothing: it has neither run, begin, on_error nor end", extension.name);
  }
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(extensions_, [&](const Extension& e) { return e.name == name; });
  };
  const std::string name = extension.name;
  for (int n = 1; taken(extension.name); ++n) extension.name = fmt::format("{}_{}", name, n);
  const auto place =
      std::ranges::find_if(extensions_, [&](const Extension& e) { return e.priority < extension.priority; });
  extensions_.insert(place, std::move(extension));
}

double Loop::Seconds() const {
  if (!running_) return seconds_before_;
  return seconds_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Loop::Begin() {
  std::vector<const Extension*> order;
  for (const Extension& extension : extensions_) order.push_back(&extension);
  std::ranges::stable_sort(order, {}, &Extension::priority);
  for (const Extension* extension : order) {
    if (extension->begin) extension->begin(*this);
  }
  // A moment of its own, at which nothing has passed.
  now_.previous_iteration = now_.iteration;
  now_.previous_epoch_detail = now_.epoch_detail;
  now_.is_new_epoch = false;
  observation_ = Observation();
  over_ = stop_.Due(now_, observation_);
}

void Loop::LookAround() {
  const Moment before = now_;
  now_ = learner_->now();
  now_.previous_iteration = before.iteration;
  now_.previous_epoch_detail = before.epoch_detail;
  now_.seconds = Seconds();
  observation_ = Observation([this](Observation* observation) { learner_->Observe(observation); });
  bool asked = false;
  const auto ask = [&] {
    if (!std::exchange(asked, true)) over_ = stop_.Due(now_, observation_);
  };
  for (Extension& extension : extensions_) {
    if (extension.priority <= kSaves) ask();
    if (extension.run && extension.trigger.Due(now_, observation_)) extension.run(*this);
  }
  ask();
}

void Loop::Run() {
  if (running_) Throw("the loop is running already");
  start_ = std::chrono::steady_clock::now();
  running_ = true;
  stopped_ = failed_ = false;
  std::exception_ptr error;
  try {
    Begin();
    while (!over_ && !(stopped_ = stop_requested_.load(std::memory_order_relaxed))) {
      learner_->Update();
      LookAround();
    }
  } catch (...) {
    failed_ = true;
    error = std::current_exception();
    HandleError(error);
  }
  stop_requested_.store(false, std::memory_order_relaxed);
  error = End(error);
  seconds_before_ = Seconds();
  running_ = false;
  if (error) std::rethrow_exception(error);
}

void Loop::HandleError(const std::exception_ptr& error) {
  for (const Extension& extension : extensions_) {
    if (!extension.on_error) continue;
    try {
      extension.on_error(*this, error);
    } catch (...) {
      const std::string text = TextOf(std::current_exception());
      LogLine(LogLevel::kError, fmt::format("extension \"{}\" failed after an error: {}", extension.name, text));
    }
  }
}

// Returns the first error of all.
std::exception_ptr Loop::End(std::exception_ptr error) {
  const auto attempt = [&](const std::string& who, const auto& end) {
    try {
      end();
    } catch (...) {
      const std::exception_ptr thrown = std::current_exception();
      if (error) LogLine(LogLevel::kError, fmt::format("{} failed at the end of a run: {}", who, TextOf(thrown)));
      if (!error) error = thrown;
    }
  };
  for (const Extension& extension : extensions_) {
    if (!extension.end) continue;
    attempt(fmt::format("extension \"{}\"", extension.name), [&] { extension.end(*this); });
  }
  attempt("the learner", [&] { learner_->Finalize(); });
  return error;
}

void Loop::Serialize(Archive* archive) {
  Archive loop = archive->In(kLoop);
  // Time makes each checkpoint another one: it is kept where somebody remembers something, the time perhaps.
  std::map<std::string, double> time;
  const auto remembers = [](const Extension& e) { return e.serialize || e.trigger.remembers(); };
  if (stop_.remembers() || std::ranges::any_of(extensions_, remembers)) time["seconds"] = Seconds();
  Archive clock = loop.In("time");
  clock.Numbers(&time);
  if (archive->reading() && time.contains("seconds")) {
    if (!(time["seconds"] >= 0 && time["seconds"] < 1e12)) {
      Throw<CheckpointError>("a run has not taken {} seconds", time["seconds"]);
    }
    seconds_before_ = time["seconds"];
    start_ = std::chrono::steady_clock::now();
  }
  Archive stop = loop.In("stop");
  stop_.Serialize(&stop);
  for (Extension& extension : extensions_) {
    const Archive place = archive->In(kExtension + extension.name);
    Archive trigger = place.In("trigger"), state = place.In("state");
    extension.trigger.Serialize(&trigger);
    if (!extension.serialize || (archive->reading() && state.empty())) continue;
    std::string mark;  // so that a state of nothing is one, too
    state.Text("", &mark);
    extension.serialize(&state);
  }
}

Checkpoint Loop::ToCheckpoint() {
  Checkpoint checkpoint = learner_->ToCheckpoint();
  Archive archive = Archive::To(&checkpoint);
  Serialize(&archive);
  return checkpoint;
}

void Loop::Restore(Checkpoint checkpoint) {
  Checkpoint before;
  Archive backup = Archive::To(&before), archive = Archive::From(checkpoint);
  Serialize(&backup);
  try {
    Serialize(&archive);
    const auto take_mine = [](auto* values, const std::string& prefix) {
      std::erase_if(*values, [&](const auto& entry) { return entry.first.starts_with(prefix); });
    };
    for (const std::string& prefix : {kExtension, fmt::format("{}/", kLoop)}) {
      take_mine(&checkpoint.iterator, prefix);
      take_mine(&checkpoint.numbers, prefix);
      take_mine(&checkpoint.info, prefix);
    }
    // The loop itself has none: a model's may be called "loop/weight".
    for (HostTensorMap* tensors : {&checkpoint.model.params, &checkpoint.model.aux, &checkpoint.optimizer_state}) {
      take_mine(tensors, kExtension);
    }
    learner_->Restore(checkpoint);
  } catch (...) {
    Archive mine = Archive::From(before);
    Serialize(&mine);
    throw;
  }
  now_ = learner_->now();
  now_.seconds = Seconds();
}

Trigger UntilEpoch(double epoch) {
  return Trigger(
      [=](const Moment& moment, const Observation&, const Trigger::Memory&) { return moment.epoch_detail >= epoch; });
}

Trigger UntilIteration(int64_t iteration) {
  return Trigger(
      [=](const Moment& moment, const Observation&, const Trigger::Memory&) { return moment.iteration >= iteration; });
}

}  // namespace bindery
