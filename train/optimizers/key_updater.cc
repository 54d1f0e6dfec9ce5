#include "train/optimizers/key_updater.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "train/optimizers/row_update.h"

namespace bindery {
namespace {

constexpr const char* kStep = "step";

std::string TextOf(const Key& key) {
  const std::string* text = std::get_if<std::string>(&key);
  return text ? *text : ToString(key);
}

}  // namespace

class KeyedOptimizer::States {
 public:
  States(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options)
      : optimizer_(std::move(optimizer)), options_(std::move(options)) {
    if (optimizer_->options().clip_norm > 0) {
      Throw("{}: keys are updated one by one, so there is no norm of all gradients to clip by", optimizer_->Text());
    }
    if (!options_.schedule) options_.schedule = ConstantSchedule(optimizer_->options().learning_rate);
    if (options_.schedule->by_epoch()) {
      Throw("the schedule {} goes by epochs, of which nobody tells an updater by keys", options_.schedule->Text());
    }
  }

  void Update(const Key& key, DType dtype, const void* sum, void* stored, int64_t elements) {
    std::shared_lock running(running_);
    State& state = Find(key, dtype, elements);
    const std::vector<void*> tensors = Addresses(&state);
    UpdateArgs args = NextArgs(key, state);
    if (optimizer_->measure() && MultipliersFor(key).wd != 0) {
      args.squares = optimizer_->Measure(dtype, args, {&sum, 1}, stored, tensors, elements);
    }
    optimizer_->Update(dtype, args, {&sum, 1}, stored, tensors, {}, elements);
    state.step = args.step;
  }

  void UpdateRows(const Key& key, const RowSums& sums, void* stored, int64_t elements) {
    std::shared_lock running(running_);
    State& state = Find(key, sums.dtype(), elements);
    const std::vector<void*> tensors = Addresses(&state);
    if (!state.rows) state.rows = std::make_shared<RowUpdate>();
    const UpdateArgs args = NextArgs(key, state);
    state.rows->Run(*optimizer_, args, sums, {&stored, 1}, tensors);
    state.step = args.step;  // what throws is no step
  }

  const Optimizer& optimizer() const { return *optimizer_; }

  HostTensorMap Get() const {
    std::unique_lock none_running(running_);
    const std::vector<std::string> names = optimizer_->state_names();
    HostTensorMap all;
    for (const auto& [key, state] : states_) {
      HostTensor step(DType::kInt64, {1});
      step.data<int64_t>()[0] = state.step;
      all[key + ":" + kStep] = std::move(step);
      for (size_t i = 0; i < names.size(); ++i) all[key + ":" + names[i]] = state.tensors[i];
    }
    return all;
  }

  void Set(const HostTensorMap& all) {
    std::map<std::string, State> states = Parse(all);
    std::unique_lock none_running(running_);
    states_ = std::move(states);
  }

 private:
  struct State {
    bool used = false;  // else of SetState, and not compared with its key yet
    DType dtype = DType::kFloat32;
    int64_t elements = 0;
    int64_t step = 0;
    std::vector<HostTensor> tensors = {};
    std::shared_ptr<RowUpdate> rows = nullptr;  // made when it is needed
  };

  static std::vector<void*> Addresses(State* state) {
    std::vector<void*> tensors;
    for (HostTensor& tensor : state->tensors) tensors.push_back(tensor.raw());
    return tensors;
  }

  UpdateArgs NextArgs(const Key& key, const State& state) const {
    const int64_t step = state.step + 1;
    const Multipliers multipliers = MultipliersFor(key);
    return {.step = step,
            .learning_rate = options_.schedule->LearningRate(step) * multipliers.lr,
            .weight_decay = optimizer_->options().weight_decay * multipliers.wd,
            .rescale = optimizer_->options().rescale_gradient.value_or(options_.rescale)};
  }

  Multipliers MultipliersFor(const Key& key) const {
    const std::string* name = std::get_if<std::string>(&key);
    if (!name) return {};
    const auto own = options_.annotations.find(*name);
    return MultipliersOf(*name, own == options_.annotations.end() ? Annotations() : own->second);
  }

  State& Find(const Key& key, DType dtype, int64_t elements) {
    std::lock_guard lock(mutex_);
    const auto [place, is_new] = states_.try_emplace(TextOf(key));  // a place in a map stays where it is
    State& state = place->second;
    if (is_new) {
      for (int i = 0; i < optimizer_->state_count(); ++i) state.tensors.emplace_back(dtype, Shape{elements});
    } else if (state.dtype != dtype || state.elements != elements) {
      // Without tensors there is nothing that a first update could contradict.
      if (state.used || !state.tensors.empty()) {
        Throw<ShapeError>("key {}: the optimizer's state is of {} elements of {}, but {} of {} are updated now",
                          ToString(key), state.elements, state.dtype, elements, dtype);
      }
    }
    state.used = true;
    state.dtype = dtype;
    state.elements = elements;
    return state;
  }

  std::map<std::string, State> Parse(const HostTensorMap& all) const {
    const std::vector<std::string> names = optimizer_->state_names();
    std::map<std::string, State> states;
    for (const auto& [name, tensor] : all) {
      const size_t colon = name.rfind(':');
      const std::string own = colon == std::string::npos ? "" : name.substr(colon + 1);
      if (own != kStep && std::ranges::find(names, own) == names.end()) {
        Throw<CheckpointError>("optimizer state \"{}\": expected <key>:<state> with one of the states of {}: {}", name,
                               optimizer_->Text(), fmt::join(WithStep(names), ", "));
      }
      states.try_emplace(name.substr(0, colon));
    }
    for (auto& [key, state] : states) {
      const HostTensor& step = Given(all, key, kStep);
      constexpr int64_t kMost = int64_t{1} << 53;
      if (step.dtype() != DType::kInt64 || step.elements() != 1 || step.data<int64_t>()[0] < 0 ||
          step.data<int64_t>()[0] > kMost) {
        Throw<CheckpointError>("optimizer state \"{}:{}\": expected one int64 from 0 to 2^53, got {} {}", key, kStep,
                               step.dtype(), step.shape());
      }
      state.step = step.data<int64_t>()[0];
      for (const std::string& name : names) {
        const HostTensor& tensor = Given(all, key, name);
        if (state.tensors.empty()) {
          state.dtype = tensor.dtype();
          state.elements = tensor.elements();
        } else if (tensor.dtype() != state.dtype || tensor.elements() != state.elements) {
          Throw<CheckpointError>("optimizer state \"{}:{}\": expected {} elements of {} as \"{}\" has, got {} of {}",
                                 key, name, state.elements, state.dtype, names[0], tensor.elements(), tensor.dtype());
        }
        state.tensors.push_back(tensor);
      }
    }
    return states;
  }

  static std::vector<std::string> WithStep(std::vector<std::string> names) {
    names.emplace_back(kStep);
    return names;
  }

  static const HostTensor& Given(const HostTensorMap& all, const std::string& key, const std::string& state) {
    const auto found = all.find(key + ":" + state);
    if (found == all.end()) Throw<CheckpointError>("the optimizer state \"{}:{}\" is missing", key, state);
    return found->second;
  }

  const std::shared_ptr<const Optimizer> optimizer_;
  KeyUpdaterOptions options_;
  mutable std::shared_mutex running_;  // shared: an update runs
  std::mutex mutex_;                   // of the map, not of what is in it
  std::map<std::string, State> states_;
};

KeyedOptimizer::KeyedOptimizer(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options)
    : states_(std::make_shared<States>(std::move(optimizer), std::move(options))) {}

KeyUpdater KeyedOptimizer::updater() const {
  return [states = states_](const Key& key, DType dtype, const void* sum, void* stored, int64_t elements) {
    states->Update(key, dtype, sum, stored, elements);
  };
}

RowUpdater KeyedOptimizer::row_updater() const {
  if (states_->optimizer().measure()) {
    Throw("{} goes by norms of whole values: it has no update of rows", states_->optimizer().Text());
  }
  return [states = states_](const Key& key, const RowSums& sums, void* stored, int64_t elements) {
    states->UpdateRows(key, sums, stored, elements);
  };
}

HostTensorMap KeyedOptimizer::State() const { return states_->Get(); }

void KeyedOptimizer::SetState(const HostTensorMap& state) { states_->Set(state); }

KeyUpdater MakeKeyUpdater(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options) {
  return KeyedOptimizer(std::move(optimizer), std::move(options)).updater();
}

}  // namespace bindery
