// What learners do alike that keep steps in flight (train/updater/updater.h), oldest first: of any type with the number
// of a step, `int64_t step`. Private to train.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "train/updater/updater.h"

namespace bindery {

// Until the updater is in no step's use, for those who end with nobody left to be told how a step does. A device that
// hangs is waited for until it is back.
template <class Steps>
void WaitForAll(Updater* updater, const Steps& in_flight) {
  for (const auto& flying : in_flight) {
    for (bool over = false; !over;) {
      try {
        updater->WaitFor(flying.step);
        over = true;
      } catch (const HangError&) {
      } catch (...) {
        over = true;
      }
    }
  }
}

// Of a step that is not committed, whose gradients overflowed at a loss scale of `scale`: whether it is to be taken once
// more, if its batch is there to be. Logs what becomes of it.
inline bool IsOnceMore(const Updater& updater, int64_t step, double scale, bool has_batch) {
  const bool again = has_batch && updater.loss_scaling()->on_overflow == OnOverflow::kRetry;
  LogLine(LogLevel::kInfo,
          fmt::format("gradients of step {} overflow at a loss scale of {}: {} at {}", step, scale,
                      again ? "once more" : "its batch is left out; going on", updater.loss_scale().scale));
  return again;
}

// Finishes the oldest step, which leaves, and says whether it is committed. If it is not, none is in flight any more, as
// those behind it did nothing; nor where its error is thrown, but after a HangError: it may still end well.
template <class Step>
std::pair<Step, bool> FinishOldest(Updater* updater, std::vector<Step>* in_flight) {
  Step oldest = std::move(in_flight->front());
  bool committed = false;
  try {
    committed = updater->Finish(oldest.step);
  } catch (const HangError&) {
    in_flight->front() = std::move(oldest);
    throw;
  } catch (...) {
    updater->GoBack(oldest.step);
    in_flight->clear();
    throw;
  }
  if (committed) {
    in_flight->erase(in_flight->begin());
  } else {
    in_flight->clear();
  }
  return {std::move(oldest), committed};
}

}  // namespace bindery
