#include "train/key_updater.h"

#include <mutex>
#include <utility>
#include <vector>

#include "base/host_tensor.h"

namespace bindery {
namespace {

class States {
 public:
  States(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options)
      : optimizer_(std::move(optimizer)), options_(std::move(options)) {
    if (!options_.schedule) options_.schedule = ConstantSchedule(optimizer_->options().learning_rate);
  }

  void Update(const Key& key, DType dtype, const void* sum, void* stored, int64_t elements) {
    State& state = Find(key, dtype, elements);
    std::vector<void*> tensors;
    for (HostTensor& tensor : state.tensors) tensors.push_back(tensor.raw());
    ++state.step;
    optimizer_->Update(dtype,
                       {.step = state.step,
                        .learning_rate = options_.schedule->LearningRate(state.step) * state.multipliers.lr,
                        .weight_decay = optimizer_->options().weight_decay * state.multipliers.wd,
                        .rescale = optimizer_->options().rescale_gradient.value_or(options_.rescale)},
                       {&sum, 1}, stored, tensors, {}, elements);
  }

 private:
  struct State {
    DType dtype = DType::kFloat32;
    int64_t elements = 0;
    int64_t step = 0;
    Multipliers multipliers = {};
    std::vector<HostTensor> tensors = {};
  };

  State& Find(const Key& key, DType dtype, int64_t elements) {
    std::lock_guard lock(mutex_);
    const auto [place, is_new] = states_.try_emplace(key);  // a place in a map stays where it is
    State& state = place->second;
    if (!is_new) {
      if (state.dtype == dtype && state.elements == elements) return state;
      Throw<ShapeError>("key {}: the optimizer's state is of {} elements of {}, but {} of {} are updated now",
                        ToString(key), state.elements, state.dtype, elements, dtype);
    }
    state.dtype = dtype;
    state.elements = elements;
    if (const std::string* name = std::get_if<std::string>(&key)) {
      const auto own = options_.annotations.find(*name);
      state.multipliers = MultipliersOf(*name, own == options_.annotations.end() ? Annotations() : own->second);
    }
    for (int i = 0; i < optimizer_->state_count(); ++i) state.tensors.emplace_back(dtype, Shape{elements});
    return state;
  }

  const std::shared_ptr<const Optimizer> optimizer_;
  KeyUpdaterOptions options_;
  std::mutex mutex_;  // of the map, not of what is in it
  std::map<Key, State> states_;
};

}  // namespace

KeyUpdater MakeKeyUpdater(std::shared_ptr<const Optimizer> optimizer, KeyUpdaterOptions options) {
  const auto states = std::make_shared<States>(std::move(optimizer), std::move(options));
  return [states](const Key& key, DType dtype, const void* sum, void* stored, int64_t elements) {
    states->Update(key, dtype, sum, stored, elements);
  };
}

}  // namespace bindery
