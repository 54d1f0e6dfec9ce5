#include "train/events/tensorboard.h"

#include <memory>
#include <utility>

#include "train/loop/loop.h"

namespace bindery {
namespace {

struct State {
  TensorBoardOptions options;
  std::unique_ptr<EventWriter> events = {};
  RunningMeans means = {};

  void Begin(Loop& loop) {
    events = std::make_unique<EventWriter>(options.folder);
    const int64_t done = loop.now().iteration;
    if (done > 0) events->Restart(done + 1);
    if (!options.settings.empty()) events->Settings(options.settings, options.compared);
    if (done == 0 && options.begin) options.begin(*events);
    events->Flush();
  }

  void Run(Loop& loop) {
    const Moment& now = loop.now();
    means.Add(loop.observation());
    const bool due = options.trigger.Due(now, loop.observation());
    if (due || now.is_new_epoch) {
      for (const auto& [name, value] : means.Take()) events->Scalar(name, now.iteration, value);
      events->Scalar("run/epoch", now.iteration, now.epoch_detail);
      events->Scalar("run/seconds", now.iteration, now.seconds);
    }
    const bool shapes = options.histograms.Due(now, loop.observation());
    if (shapes) {
      for (const std::string& name : loop.learner().model_names()) {
        const Model model = loop.learner().ToModel(name);
        for (const HostTensorMap* values : {&model.params, &model.aux}) {
          for (const auto& [parameter, value] : *values) {
            events->Histogram(name + "/" + parameter, now.iteration, value);
          }
        }
      }
    }
    if (due || shapes || now.is_new_epoch) events->Flush();
  }
};

}  // namespace

Extension TensorBoard(TensorBoardOptions options) {
  const auto state = std::make_shared<State>(State{std::move(options)});
  return {.name = "tensorboard",
          .trigger = Always(),
          .run = [state](Loop& loop) { state->Run(loop); },
          .begin = [state](Loop& loop) { state->Begin(loop); },
          .end =
              [state](Loop& loop) {
                if (state->events) state->events->End(!loop.failed());
                state->events = nullptr;
              },
          .serialize =
              [state](Archive* archive) {
                Archive scalars = archive->In("scalars"), histograms = archive->In("histograms");
                Archive means = archive->In("means");
                state->means.Serialize(&means);
                state->options.trigger.Serialize(&scalars);
                state->options.histograms.Serialize(&histograms);
              }};
}

}  // namespace bindery
