// Updater: the optimizer's state, from the devices that have it and to them.
#include <algorithm>
#include <cstring>
#include <map>

#include "base/names.h"
#include "executor/reformat.h"
#include "train/updater.h"

namespace bindery {
namespace {

std::string StateName(const std::string& parameter, const std::string& state) { return parameter + ":" + state; }

}  // namespace

// A device may have lost its values, but not all of them: then the state is that of the others.
void Updater::Wait() const {
  for (const BlockState& block : blocks_) {
    const std::vector<Tensor>& values = group_->store().blocks()[block.block].values;
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
  for (const int index : group_->store().blocks()[block.block].parameters) {
    const StoredParameter& p = group_->store().parameters()[index];
    if (piece == block.pieces.end() || piece->begin != p.offset) continue;
    visit(p);
    ++piece;
  }
}

std::vector<HostTensor> Updater::Gather(const BlockState& block) const {
  std::vector<HostTensor> states;
  for (int i = 0; i < optimizer_->state_count(); ++i) {
    HostTensor& whole = states.emplace_back(block.dtype, Shape{block.states.back().end});
    for (const StateRange& range : block.states) {
      const size_t slot = range.committed.defined() ? verdict_->committed % 2 : 0;
      const HostTensor part = range.slots[slot][static_cast<size_t>(i)].ToHost();
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
  HostTensorMap state;
  const std::vector<std::string> names = optimizer_->state_names();
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

void Updater::CheckState(const HostTensorMap& state) const {
  // By name of the state, so that what is told first does not depend on blocks.
  std::map<std::string, const StoredParameter*> known;
  for (const BlockState& block : blocks_) {
    ForEachParameter(block, [&](const StoredParameter& p) {
      for (const std::string& own : optimizer_->state_names()) known.emplace(StateName(p.name, own), &p);
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
  verdict_->committed = 0;
  Recount();
  const std::vector<std::string> names = optimizer_->state_names();
  for (const BlockState& block : blocks_) {
    std::vector<HostTensor> states;
    for (size_t i = 0; i < names.size(); ++i) {
      HostTensor& whole = states.emplace_back(block.dtype, Shape{block.states.back().end});
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
}

void Updater::Mend() {
  group_->store().Mend();
  Recount();
}

}  // namespace bindery
