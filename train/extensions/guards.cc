#include "train/extensions/guards.h"

#include <cmath>
#include <memory>

#include "base/error.h"
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
  };
  const auto state = std::make_shared<State>(State{std::move(trigger)});
  return {.name = "judge " + model,
          .trigger = Always(),
          .priority = kEdits,
          .run =
              [=](Loop& loop) {
                if (const Observation::Value* reported = loop.observation().Find(value)) state->mean.Add(*reported);
                if (!state->trigger.Due(loop.now(), loop.observation()) || !state->mean.any()) return;
                loop.learner().updater(model).Judge(std::exchange(state->mean, {}).value(),
                                                    LargerIsBetter(value, better));
              },
          .serialize =
              [state](Archive* archive) {
                Archive trigger = archive->In("trigger"), mean = archive->In("mean");
                state->trigger.Serialize(&trigger);
                if (archive->reading()) state->mean = {};
                if (archive->reading() ? !mean.empty() : state->mean.any()) state->mean.Serialize(&mean);
              }};
}

}  // namespace bindery
