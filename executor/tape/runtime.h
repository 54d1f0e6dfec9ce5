// Runtime: what the arrays of one engine share: programs that were compiled before, and for each device the working
// memory in which they run. It lives as long as some array of the engine does. Thread safe. Private to executor/tape.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/memory/arena.h"
#include "engine/tensor.h"
#include "executor/step_block.h"
#include "executor/tape/ndarray.h"
#include "executor/tape/placed_program.h"

namespace bindery::tape {

// By key, the least recently used out first. Not thread safe.
template <class T>
class LruCache {
 public:
  explicit LruCache(size_t limit) : limit_(limit) {}
  std::shared_ptr<const T> Find(const std::string& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    items_.splice(items_.begin(), items_, found->second);
    return items_.front().second;
  }
  void Add(const std::string& key, std::shared_ptr<const T> value) {
    items_.emplace_front(key, std::move(value));
    if (!places_.emplace(items_.front().first, items_.begin()).second) {  // another thread made it meanwhile
      items_.pop_front();
      return;
    }
    if (items_.size() <= limit_) return;
    places_.erase(items_.back().first);
    items_.pop_back();
  }
  size_t size() const { return items_.size(); }

 private:
  using Items = std::list<std::pair<const std::string, std::shared_ptr<const T>>>;
  const size_t limit_;
  Items items_;
  std::unordered_map<std::string_view, typename Items::iterator> places_;  // the keys are in the items
};

struct Unit;
struct BackwardProgram;

// One run of a program.
struct RunOptions {
  std::string name = {};  // of the operation, for messages
  Device device = {};
  std::vector<Tensor> arguments = {}, auxiliary = {};  // on the device, of the plan's types; the latter may change
  StepBlock step = {};
  std::vector<Tensor> into = {};  // by result: the array to be written, where one is defined and can be
  bool in_place = false;          // into[0] is argument 0
};

class Runtime {
 public:
  static std::shared_ptr<Runtime> Of(const std::shared_ptr<Engine>& engine);
  explicit Runtime(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  const std::shared_ptr<Engine>& engine() const { return engine_; }

  // Asynchronous. By result: the array that has it, on memory of its own.
  std::vector<Tensor> Run(const PlacedProgram& program, RunOptions options);
  // A number without axes, on the device; those used last are kept. Throws Error where the element type has no such
  // number.
  Tensor Number(Device device, DType dtype, double value);
  // Of a CPU: the cores, shared out among the CPUs that have run something. Counts `device` as one.
  int ThreadsOf(Device device);

  std::shared_ptr<const Unit> FindUnit(const std::string& key,
                                       const std::function<std::shared_ptr<const Unit>()>& make);
  std::shared_ptr<const BackwardProgram> FindBackward(
      const std::string& key, const std::function<std::shared_ptr<const BackwardProgram>()>& make);
  TapeStatistics statistics() const;

 private:
  struct OnDevice {
    std::shared_ptr<Arena> arena;
    Tensor step;  // a StepBlock for programs that do not look at it
  };
  OnDevice& StateOf(Device device);
  Tensor NewResult(Device device, const ValueType& type, int64_t bytes) const;
  Tensor NewStep(Device device, const StepBlock& step) const;
  template <class T>
  std::shared_ptr<const T> FindOrMake(LruCache<T>* cache, const std::string& key,
                                      const std::function<std::shared_ptr<const T>()>& make);

  static constexpr size_t kUnits = 2000, kBackwards = 200, kNumbers = 200;
  const std::shared_ptr<Engine> engine_;
  mutable std::mutex mutex_;  // of all below
  std::map<Device, OnDevice> devices_;
  LruCache<Unit> units_{kUnits};
  LruCache<BackwardProgram> backwards_{kBackwards};
  LruCache<Tensor> numbers_{kNumbers};
  int64_t compiled_ = 0, runs_ = 0;
};

// What random operators draw from: each call in the process has a number of its own, since Seed. Thread safe.
void Seed(uint64_t seed);
StepBlock NextDraw();

}  // namespace bindery::tape
