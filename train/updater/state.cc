// Updater: the optimizer's state, from the devices that have it and to them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "base/names.h"
#include "executor/reformat.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

constexpr const char* kAverage = "average";

std::string StateName(const std::string& parameter, const std::string& state) { return parameter + ":" + state; }

}  // namespace

std::vector<std::string> Updater::StateNames() const {
  std::vector<std::string> names = optimizer_->state_names();
  if (average_) names.push_back(kAverage);
  return names;
}

std::vector<Tensor> Updater::NewStates(Device device, DType dtype, int64_t elements) const {
  std::vector<Tensor> states;
  for (size_t i = 0, count = StateNames().size(); i < count; ++i) {
    states.emplace_back(group_->engine(), device, dtype, Shape{elements}).Wait();  // for the zeros
  }
  return states;
}

// A device may have lost its values, but not all of them: then the state is that of the others.
void Updater::Wait() const {
  for (const BlockState& block : blocks_) {
    const std::vector<Tensor>& values = StoredBlock(block).values;
    size_t lost = 0;
    for (const Tensor& device : values) {
      try {
        device.Wait();
      } catch (const HangError&) {
        throw;
      } catch (const DeviceError&) {
        if (++lost == values.size()) throw;
      }
    }
  }
}

template <class Visit>
void Updater::ForEachParameter(const BlockState& block, const Visit& visit) const {
  auto piece = block.pieces.begin();
  for (const int index : StoredBlock(block).parameters) {
    const StoredParameter& p = block.stage->store().parameters()[static_cast<size_t>(index)];
    if (piece == block.pieces.end() || piece->begin != p.offset) continue;
    visit(p);
    ++piece;
  }
}

std::vector<HostTensor> Updater::Gather(const BlockState& block) const {
  if (shared_) return shared_->states[static_cast<size_t>(&block - blocks_.data())];
  std::vector<HostTensor> states;
  for (size_t i = 0, count = StateNames().size(); i < count; ++i) {
    HostTensor& whole = states.emplace_back(block.dtype, Shape{block.states.back().end});
    for (const StateRange& range : block.states) {
      const size_t slot = range.committed.defined() ? verdict_->committed % 2 : 0;
      const HostTensor part = range.slots[slot][i].ToHost();
      std::memcpy(static_cast<char*>(whole.raw()) + range.begin * SizeOf(block.dtype), part.raw(),
                  static_cast<size_t>(part.elements() * SizeOf(block.dtype)));
    }
  }
  return states;
}

void Updater::Recount() const {
  const auto wait = [&](const VarPtr& var) {
    try {
      group_->engine()->Wait(var);
    } catch (const HangError&) {
      throw;
    } catch (const Error&) {  // whoever needs it is told
    }
  };
  wait(committed_);
  recount_.Push();
  for (const BlockState& block : blocks_) {
    for (const StateRange& range : block.states) {
      if (range.committed.defined()) wait(range.committed.var());
    }
  }
}

HostTensorMap Updater::State() const {
  Wait();
  Recount();
  KeepState();
  HostTensorMap state;
  const std::vector<std::string> names = StateNames();
  for (const BlockState& block : blocks_) {
    const std::vector<HostTensor> states = Gather(block);
    ForEachParameter(block, [&](const StoredParameter& p) {
      for (size_t i = 0; i < names.size(); ++i) {
        const void* stored = static_cast<const char*>(states[i].raw()) + p.offset * SizeOf(p.dtype);
        state[StateName(p.name, names[i])] = FromStorage(p.dtype, p.shape, p.format, stored);
      }
    });
  }
  return state;
}

HostTensorMap Updater::Averages() const {
  if (!average_ || run_->step == 0) return {};
  HostTensorMap state = State();  // waits: then it is known how many steps were committed
  if (!run_->resumed && verdict_->committed == 0) return {};
  return AveragesIn(std::move(state));
}

HostTensorMap Updater::AveragesIn(HostTensorMap state) {
  HostTensorMap averages;
  for (auto& [name, value] : state) {
    const size_t colon = name.rfind(':');
    if (name.substr(colon + 1) == kAverage) averages[name.substr(0, colon)] = std::move(value);
  }
  return averages;
}

void Updater::CheckState(const HostTensorMap& state) const {
  // By name of the state, so that what is told first does not depend on blocks.
  std::map<std::string, const StoredParameter*> known;
  for (const BlockState& block : blocks_) {
    ForEachParameter(block, [&](const StoredParameter& p) {
      for (const std::string& own : StateNames()) known.emplace(StateName(p.name, own), &p);
    });
  }
  for (const auto& [name, p] : known) {
    const auto given = state.find(name);
    if (given == state.end()) throw CheckpointError(fmt::format("the optimizer state \"{}\" is missing", name));
    if (given->second.shape() != p->shape || given->second.dtype() != p->dtype) {
      throw CheckpointError(fmt::format("optimizer state \"{}\": expected {} {}, got {} {}", name, p->dtype, p->shape,
                                        given->second.dtype(), given->second.shape()));
    }
  }
  for (const auto& [name, tensor] : state) {
    if (known.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [one, p] : known) names.push_back(one);
    throw CheckpointError(fmt::format("there is no optimizer state \"{}\"{}", name, NameHint(name, names)));
  }
}

void Updater::SetState(const HostTensorMap& state) {
  CheckState(state);
  Wait();
  Recount();
  run_->resumed = true;
  if (shared_) shared_->states.clear();
  verdict_->committed = 0;
  Recount();
  const std::vector<std::string> names = StateNames();
  std::vector<std::vector<HostTensor>> all;
  for (const BlockState& block : blocks_) {
    std::vector<HostTensor>& states = all.emplace_back();
    for (size_t i = 0; i < names.size(); ++i) {
      HostTensor& whole = states.emplace_back(block.dtype, Shape{StoredBlock(block).elements});
      ForEachParameter(block, [&](const StoredParameter& p) {
        ToStorage(state.at(StateName(p.name, names[i])), p.format,
                  static_cast<char*>(whole.raw()) + p.offset * SizeOf(p.dtype));
      });
    }
    for (const StateRange& range : block.states) {
      for (size_t i = 0; i < names.size(); ++i) {
        range.slots[0][i].CopyFrom(states[i].Slice(0, range.begin, range.end));
        range.slots[0][i].Wait();
      }
    }
  }
  if (shared_) shared_->states = std::move(all);
}

void Updater::Forgive() {
  group_->engine()->Push(forgive_);
  forgive_on_devices_.Push();
}

void Updater::WaitFor(int64_t step) const {
  if (step <= run_->step - kInFlight || step > run_->step || step < 1) {
    Throw("WaitFor: step {} is not one of the last {} up to {}", step, kInFlight, run_->step);
  }
  group_->engine()->Wait(done_[step % kInFlight]);
}

void Updater::FinishLast() {
  const bool waits = loss_scaling_ && loss_scaling_->dynamic && run_->finished < run_->step;
  run_->finished = run_->step;
  if (waits) Finish(run_->step);
}

bool Updater::Finish(int64_t step) {
  run_->finished = step;
  try {
    WaitFor(step);
    return true;
  } catch (const NumericError&) {
    if (!loss_scaling_ || !loss_scaling_->dynamic || !verdict_->overflowed) throw;
  }
  const LossScaleState before = run_->scale_before[step % kInFlight];
  GoBack(step);
  run_->loss_scale = AfterOverflow(*loss_scaling_, before);
  return false;
}

void Updater::GoBack(int64_t step) {
  const auto wait = [](const auto& wait_for) {
    try {
      wait_for();
    } catch (...) {  // the same error
    }
  };
  for (int64_t behind = step + 1; behind <= run_->step; ++behind) wait([&] { WaitFor(behind); });
  // The last one's own errors, which nobody else will ask for.
  for (const VarPtr& gate : {gate_, refused_}) wait([&] { group_->engine()->Wait(gate); });
  Mend();
  run_->loss_scale = run_->scale_before[step % kInFlight];
  SetStep(step - 1);
  Forgive();
}

Updater::Numbers Updater::ToNumbers() const {
  Numbers numbers;
  const auto add = [&](const char* name, double value, double usual) {
    if (value != usual) numbers[name] = value;
  };
  const ScheduleState& s = run_->schedule;
  add("schedule factor", s.factor, 1);
  if (s.best) numbers["schedule best"] = *s.best;
  add("schedule waited", static_cast<double>(s.waited), 0);
  add("schedule cooling", static_cast<double>(s.cooling), 0);
  add("schedule epoch", static_cast<double>(s.epoch), 0);
  if (loss_scaling_) {
    numbers["loss scale"] = run_->loss_scale.scale;
    add("loss scale good", static_cast<double>(run_->loss_scale.good), 0);
    add("loss scale overflows", static_cast<double>(run_->loss_scale.overflows), 0);
  }
  return numbers;
}

std::pair<ScheduleState, LossScaleState> Updater::Parse(const Numbers& numbers) const {
  const auto fail = [](const char* name, const char* expected, double got) {
    throw CheckpointError(fmt::format("\"{}\": expected {}, got {}", name, expected, got));
  };
  const auto factor = [&](const char* name, double usual) {
    const auto found = numbers.find(name);
    const double value = found == numbers.end() ? usual : found->second;
    if (!(value >= 0 && value <= 0x1p53)) fail(name, "a number from 0 to 2^53", value);
    return value;
  };
  const auto count = [&](const char* name) {
    const double value = factor(name, 0);
    if (value != std::floor(value)) fail(name, "a whole number", value);
    return static_cast<int64_t>(value);
  };
  ScheduleState schedule{.factor = factor("schedule factor", 1),
                         .waited = count("schedule waited"),
                         .cooling = count("schedule cooling"),
                         .epoch = count("schedule epoch")};
  if (const auto best = numbers.find("schedule best"); best != numbers.end()) {
    if (std::isnan(best->second)) fail("schedule best", "a number", best->second);
    schedule.best = best->second;
  }
  LossScaleState scale;
  if (loss_scaling_) {
    scale = FirstState(*loss_scaling_);
    scale.good = count("loss scale good");
    scale.overflows = count("loss scale overflows");
    if (loss_scaling_->dynamic) {
      scale.scale = std::clamp(factor("loss scale", scale.scale), loss_scaling_->min, loss_scaling_->max);
    }
  }
  return {schedule, scale};
}

void Updater::SetNumbers(const Numbers& numbers) { std::tie(run_->schedule, run_->loss_scale) = Parse(numbers); }

void Updater::Mend() {
  for (DataParallelExecutorGroup* stage : stages_) stage->store().Mend();
  Recount();
}

}  // namespace bindery
