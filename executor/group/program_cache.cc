#include "executor/group/program_cache.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace bindery {
namespace {

// Measured, with all that comes with a program: of predictions by mlp and lenet 23 and 27 KiB a step, of trainings of
// lenet and resnet20 17 and 10. Most of it is oneDNN's generated code.
int64_t EstimateBytes(const Program& program) {
  return static_cast<int64_t>(program.plan.calls.size()) * (24 << 10) +
         static_cast<int64_t>(program.plan.values.size()) * 600;
}

template <class T>
void Mix(const T& value, size_t* hash) {
  *hash = *hash * 0x9e3779b97f4a7c15u + std::hash<T>()(value);
}

}  // namespace

// The programs of a group differ by their inputs' shapes, by mode and by what is watched.
ProgramKey::ProgramKey(CompileOptions options) : options_(std::move(options)), hash_(0) {
  for (Argument& a : options_.signature.arguments) {
    a.format.reset();  // the store's, once it has the parameter, as is who keeps rows
    a.by_rows = false;
    if (!a.shape) continue;
    for (const int64_t extent : *a.shape) Mix(extent, &hash_);
  }
  Mix(static_cast<int>(options_.device), &hash_);
  Mix(static_cast<int>(options_.mode), &hash_);
  Mix(options_.observe, &hash_);
}

std::shared_ptr<const Program> ProgramCache::Find(const ProgramKey& key) {
  const auto found = std::ranges::find(items_, key, &Item::key);
  if (found == items_.end()) return nullptr;
  items_.splice(items_.begin(), items_, found);
  return found->program;
}

std::shared_ptr<const Program> ProgramCache::Get(const ProgramKey& key, const Make& make) {
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Program> known = Find(key);
    ++(known ? hits_ : misses_);
    if (known) return known;
  }
  std::shared_ptr<const Program> program = make();
  const int64_t bytes = EstimateBytes(*program);
  const std::lock_guard lock(mutex_);
  if (std::shared_ptr<const Program> known = Find(key)) return known;
  items_.push_front({key, program, bytes});
  bytes_ += bytes;
  while (bytes_ > budget_ && static_cast<int>(items_.size()) > kept_) {
    bytes_ -= items_.back().bytes;
    items_.pop_back();
  }
  return program;
}

void ProgramCache::Touch(const Program* program) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(items_.begin(), items_.end(), [&](const Item& i) { return i.program.get() == program; });
  if (found != items_.end()) items_.splice(items_.begin(), items_, found);
}

bool ProgramCache::Holds(const Program* program) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(items_.begin(), items_.end(), [&](const Item& i) { return i.program.get() == program; });
}

}  // namespace bindery
