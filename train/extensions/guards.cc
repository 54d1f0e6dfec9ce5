#include "train/extensions/guards.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "train/finite.h"
#include "train/loop/loop.h"

namespace bindery {

Extension FailOnBadNumbers(Trigger trigger) {
  return {.name = "fail on bad numbers", .trigger = std::move(trigger), .run = [](Loop& loop) {
            for (const auto& [name, reported] : loop.observation().values()) {
              if (std::isfinite(reported.value)) continue;
              Throw<NumericError>("after step {}, \"{}\" is {}: training has diverged", loop.now().iteration, name,
                                  reported.value);
            }
            CheckFinite(loop.learner().ToCheckpoint());
          }};
}

Extension JudgeBy(const std::string& value, const std::string& model, Trigger trigger, Better better) {
  struct State {
    Trigger trigger;
    RunningMean mean = {};
    std::string before = {};  // the value that a restored run was judged by, if that was another
  };
  const auto state = std::make_shared<State>(State{std::move(trigger)});
  return {.name = "judge " + model,
          .trigger = Always(),
          .priority = kEdits,
          .run =
              [=](Loop& loop) {
                if (!state->before.empty()) {
                  LogLine(LogLevel::kWarning, fmt::format("the schedule of \"{}\" so far went by \"{}\"; it goes by "
                                                          "\"{}\" now: which is the best begins anew",
                                                          model, std::exchange(state->before, {}), value));
                  loop.learner().updater(model).JudgeAnew();
                }
                if (const Observation::Value* reported = loop.observation().Find(value)) state->mean.Add(*reported);
                if (!state->trigger.Due(loop.now(), loop.observation()) || !state->mean.any()) return;
                loop.learner().updater(model).Judge(std::exchange(state->mean, {}).value(),
                                                    LargerIsBetter(value, better));
              },
          .serialize =
              [=](Archive* archive) {
                Archive trigger = archive->In("trigger"), mean = archive->In("mean"), judged = archive->In("value");
                state->trigger.Serialize(&trigger);
                // Of the value that the schedule went by so far, until the next step begins anew.
                std::string name = archive->reading() || state->before.empty() ? value : state->before;
                if (!archive->reading() || !judged.empty()) judged.Text("name", &name);
                if (archive->reading()) {
                  state->mean = {};
                  state->before = name == value ? "" : name;
                }
                const bool has_mean = archive->reading() ? !mean.empty() && name == value : state->mean.any();
                if (has_mean) state->mean.Serialize(&mean);
              }};
}

}  // namespace bindery
