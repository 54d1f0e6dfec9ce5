#include "train/trace/trace_steps.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "train/loop/loop.h"
#include "train/trace/call_times.h"

namespace bindery {
namespace {

struct State {
  TraceStepsOptions options;
  int64_t moments = 0;  // of this run
  int64_t begin = 0;    // of the step that is being pushed
  bool done = false;

  void Begin() {
    MakeFolderOf(options.path);
    moments = 0;
    done = false;
    if (options.skip == 0) Start();
  }

  void Look(const Loop& loop, int64_t iteration) {
    if (done) return;
    ++moments;
    if (options.trace->recording()) {
      options.trace->Add({.name = fmt::format("step {}", iteration),
                          .category = "step",
                          .begin = begin,
                          .end = Trace::Now(),
                          .of_host = true});
    }
    if (moments == options.skip) Start();
    if (moments == options.skip + options.steps) Finish(!loop.failed());
    begin = Trace::Now();
  }

  void Start() {
    options.trace->Start();
    begin = Trace::Now();
  }

  // Of a run that ends before its last step that is recorded, or the first.
  void End(bool failed) {
    if (done) return;
    if (moments <= options.skip && options.skip > 0 && !failed) {
      LogLine(LogLevel::kWarning,
              fmt::format("the trace has no steps: the run had {}, and the first {} are not recorded", moments,
                          options.skip));
      if (moments < options.skip) Start();
    }
    Finish(!failed);
  }

  void Finish(bool again) {
    done = true;
    if (again && options.group && options.trace->recording()) {
      try {
        ExecutorGroup* const group = options.group();
        if (!group) Throw("nothing is bound yet");
        WaitForSteps(*group);  // they are recorded; what runs again is so call by call
        options.trace->Stop();
        const std::vector<CallTime> times = RunAgain(group);
        AddSlices(times, options.trace.get());
      } catch (const Error& e) {
        LogLine(LogLevel::kWarning, fmt::format("the trace has no calls of operators: {}", e.message()));
      }
    }
    options.trace->Stop();
    WriteFileAtomically(options.path, options.trace->ToJson());
  }
};

}  // namespace

Extension TraceSteps(TraceStepsOptions options) {
  if (!options.trace) Throw("TraceSteps needs a trace");
  if (options.skip < 0 || options.steps < 1) {
    Throw("TraceSteps: expected to skip 0 or more steps and to record at least 1, got {} and {}", options.skip,
          options.steps);
  }
  const auto state = std::make_shared<State>(State{std::move(options)});
  return {.name = "trace",
          .trigger = Always(),
          .run = [state](Loop& loop) { state->Look(loop, loop.now().iteration); },
          .begin = [state](Loop&) { state->Begin(); },
          .end = [state](Loop& loop) { state->End(loop.failed()); }};
}

}  // namespace bindery
