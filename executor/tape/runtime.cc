#include "executor/tape/runtime.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/memory/storage.h"
#include "engine/team.h"
#include "executor/tape/backward_program.h"
#include "executor/tape/unit.h"

namespace bindery::tape {

std::shared_ptr<Runtime> Runtime::Of(const std::shared_ptr<Engine>& engine) {
  static std::mutex mutex;
  static std::map<const Engine*, std::weak_ptr<Runtime>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Runtime>& known = all[engine.get()];
  std::shared_ptr<Runtime> runtime = known.lock();
  if (!runtime) known = runtime = std::make_shared<Runtime>(engine);
  return runtime;
}

Runtime::OnDevice& Runtime::StateOf(Device device) {
  const auto found = devices_.find(device);
  if (found != devices_.end()) {
    OnDevice& known = found->second;
    if (!engine_->Version(known.step.var())) known.step = NewStep(device, {});  // it has failed
    return known;
  }
  Backend::Of(device);  // throws unless it is there
  OnDevice made{.arena = Arena::Make(device, engine_), .step = NewStep(device, {})};
  return devices_.emplace(device, std::move(made)).first->second;
}

int Runtime::ThreadsOf(Device device) {
  if (!HostAddressable(device)) return 1;
  const std::lock_guard lock(mutex_);
  StateOf(device);
  const auto cpus = std::ranges::count_if(devices_, [](const auto& d) { return HostAddressable(d.first); });
  return std::max(1, NumCores() / static_cast<int>(cpus));
}

Tensor Runtime::NewResult(Device device, const ValueType& type, int64_t bytes) const {
  std::shared_ptr<Chunk> chunk = DefaultStorage()->Allocate(device, bytes);
  void* const data = chunk->data();
  return Tensor(engine_, device, type.dtype, type.shape, data, std::move(chunk), engine_->NewVar());
}

Tensor Runtime::NewStep(Device device, const StepBlock& step) const {
  HostTensor bytes(DType::kUInt8, {static_cast<int64_t>(sizeof step)});
  std::memcpy(bytes.raw(), &step, sizeof step);
  const Tensor there(engine_, device, bytes.dtype(), bytes.shape());
  there.CopyFrom(bytes);
  return there;
}

std::vector<Tensor> Runtime::Run(const PlacedProgram& placed, RunOptions options) {
  const std::lock_guard lock(mutex_);
  OnDevice& here = StateOf(options.device);
  const Plan& plan = placed.plan();
  if (plan.arena_bytes > here.arena->committed()) {
    engine_->WaitIdle(here.arena->var());  // nothing may run in it while it grows
    here.arena->Grow(plan.arena_bytes);
  }
  std::vector<Tensor> slots(placed.slot_bytes.size());
  for (size_t i = 0; i < placed.results.size(); ++i) {
    const PlacedProgram::Result& result = placed.results[i];
    if (!result.is_first) continue;
    const int64_t bytes = placed.slot_bytes[result.slot];
    const bool fits = i < options.into.size() && options.into[i].defined() && bytes <= options.into[i].bytes();
    slots[result.slot] = fits ? options.into[i] : NewResult(options.device, result.type, bytes);
  }

  Instance::Addresses addresses{.arena = here.arena->base(), .stream = &engine_->StreamOf(options.device)};
  Operation operation{.name = options.name, .device = options.device};
  const auto addresses_of = [](const std::vector<Tensor>& tensors, std::vector<void*>* to) {
    for (const Tensor& tensor : tensors) to->push_back(tensor.address());
  };
  addresses_of(options.arguments, &addresses.arguments);
  addresses_of(options.auxiliary, &addresses.auxiliary);
  addresses_of(slots, &addresses.gradients);
  const Tensor step = placed.reads_step ? NewStep(options.device, options.step) : here.step;
  addresses.step = static_cast<const StepBlock*>(step.address());

  for (const Tensor& argument : options.arguments) operation.reads.push_back(argument.var());
  operation.reads.push_back(step.var());
  for (const Tensor& state : options.auxiliary) operation.updates.push_back(state.var());
  for (const Tensor& slot : slots) {
    (options.in_place ? operation.updates : operation.writes).push_back(slot.var());
  }
  if (plan.arena_bytes > 0) operation.writes.push_back(here.arena->var());
  const auto instance = std::make_shared<const Instance>(placed.program, addresses);
  operation.run = [instance, step, slots, arguments = std::move(options.arguments),
                   auxiliary = std::move(options.auxiliary), arena = here.arena](const OpContext&) {
    instance->RunCalls(instance->program().plan.derive_calls, static_cast<int>(instance->program().plan.calls.size()));
  };
  operation.at = [instance] { return instance->At(); };
  engine_->Push(std::move(operation));
  ++runs_;

  std::vector<Tensor> results;
  for (size_t i = 0; i < placed.results.size(); ++i) {
    const auto& [slot, type, is_first] = placed.results[i];
    const bool wanted = i < options.into.size() && options.into[i].defined();
    Tensor result = slots[slot];
    if (!is_first) {
      result = wanted ? options.into[i] : NewResult(options.device, type, SizeOf(type.dtype) * type.shape.Elements());
      result.CopyFrom(slots[slot].Reshape(type.shape));
    }
    if (is_first && wanted && result.address() != options.into[i].address()) {
      options.into[i].CopyFrom(result);
      result = options.into[i];
    }
    results.push_back(std::move(result));
  }
  return results;
}

Tensor Runtime::Number(Device device, DType dtype, double value) {
  HostTensor host(dtype, {});
  host.Set(0, value);
  if (!IsFloat(dtype) && host.At(0) != value) Throw("arrays of {} have no number {}", dtype, value);
  std::string key = fmt::format("{} {} ", device, dtype);
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
  const std::lock_guard lock(mutex_);
  if (const std::shared_ptr<const Tensor> known = numbers_.Find(key)) {
    if (engine_->Version(known->var())) return *known;  // it has not failed
  }
  const Tensor number(engine_, device, dtype, Shape{});
  number.CopyFrom(host);
  numbers_.Add(key, std::make_shared<const Tensor>(number));
  return number;
}

template <class T>
std::shared_ptr<const T> Runtime::FindOrMake(LruCache<T>* cache, const std::string& key,
                                             const std::function<std::shared_ptr<const T>()>& make) {
  {
    const std::lock_guard lock(mutex_);
    if (std::shared_ptr<const T> known = cache->Find(key)) return known;
  }
  std::shared_ptr<const T> made = make();  // may take long
  const std::lock_guard lock(mutex_);
  ++compiled_;
  if (std::shared_ptr<const T> known = cache->Find(key)) return known;  // another thread was faster
  cache->Add(key, made);
  return made;
}

std::shared_ptr<const Unit> Runtime::FindUnit(const std::string& key,
                                              const std::function<std::shared_ptr<const Unit>()>& make) {
  return FindOrMake(&units_, key, make);
}

std::shared_ptr<const BackwardProgram> Runtime::FindBackward(
    const std::string& key, const std::function<std::shared_ptr<const BackwardProgram>()>& make) {
  return FindOrMake(&backwards_, key, make);
}

TapeStatistics Runtime::statistics() const {
  const std::lock_guard lock(mutex_);
  return {static_cast<int64_t>(units_.size()), static_cast<int64_t>(backwards_.size()), compiled_, runs_};
}

namespace {

struct Draws {
  std::mutex mutex;
  uint64_t seed = 0, number = 0;
};
Draws& TheDraws() {
  static Draws draws;
  return draws;
}

}  // namespace

void Seed(uint64_t seed) {
  Draws& draws = TheDraws();
  const std::lock_guard lock(draws.mutex);
  draws.seed = seed;
  draws.number = 0;
}

StepBlock NextDraw() {
  Draws& draws = TheDraws();
  const std::lock_guard lock(draws.mutex);
  return {.seed = draws.seed, .step = draws.number++};
}

}  // namespace bindery::tape
