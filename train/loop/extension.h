// Extension: what a run does besides updating: reports, snapshots, evaluations. A name, a trigger, and functions.
//
//   loop.Extend({.name = "halve", .trigger = EveryEpochs(10), .run = [](Loop& loop) { ... }});
//
// At each moment those that are due run one after the other, of higher priority first, of equal ones in the order in
// which they were added: what makes values comes before what reads them. A trigger is asked when its turn has come, so
// that it sees what was reported at this moment before it.
//
// Ready made: train/extensions.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "train/loop/trigger.h"

namespace bindery {

class Loop;

// Priorities: of what makes values that are observed, changes something by them, reads them, saves it all.
inline constexpr int kWrites = 300, kEdits = 200, kReads = 100, kSaves = 0;

struct Extension {
  std::string name = {};
  Trigger trigger = EveryEpochs();
  int priority = kReads;
  std::function<void(Loop&)> run = {};
  std::function<void(Loop&)> begin = {};  // before the first update of a run; those of lower priority first
  // When an update or an extension has failed. What these throw is logged.
  std::function<void(Loop&, const std::exception_ptr&)> on_error = {};
  std::function<void(Loop&)> end = {};           // last of all, however the run ended
  std::function<void(Archive*)> serialize = {};  // its own state; the trigger's is kept in any case
};

}  // namespace bindery
