#include "executor/program_cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace bindery {
namespace {

// A oneDNN primitive with its generated code takes some 20 KiB; plan entries a few hundred bytes.
int64_t EstimateBytes(const Program& program) {
  return static_cast<int64_t>(program.plan.steps.size()) * (20 << 10) +
         static_cast<int64_t>(program.plan.values.size()) * 400;
}

}  // namespace

std::string ProgramKey(const CompileOptions& o) {
  fmt::memory_buffer key;
  const auto out = std::back_inserter(key);
  for (const auto& [name, shape] : o.shapes) fmt::format_to(out, "{}{};", name, shape);
  for (const auto& [name, dtype] : o.dtypes) fmt::format_to(out, "{}:{};", name, dtype);
  for (const auto& [name, axis] : o.batch_axes) fmt::format_to(out, "{}@{};", name, axis);
  for (const auto& [name, req] : o.grad_req) fmt::format_to(out, "{}={};", name, static_cast<int>(req));
  for (const std::string& name : o.parameters) fmt::format_to(out, "{},", name);
  for (const std::string& name : o.frozen) fmt::format_to(out, "{}!", name);
  fmt::format_to(out, "|{}{}|{}{}{}{}{}{}{}{}|{}|{}", static_cast<int>(o.device), o.plain_parameters,
                 static_cast<int>(o.mode), o.with_backward, o.devices > 1, static_cast<int>(o.policy), o.passes,
                 o.fusion, o.inplace, o.reuse_memory, o.threads, o.observe);
  return fmt::to_string(key);
}

std::shared_ptr<const Program> ProgramCache::Get(const std::string& key, const Make& make) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    ++hits_;
    items_.splice(items_.begin(), items_, found->second);
    return found->second->program;
  }
  ++misses_;
  std::shared_ptr<const Program> program = make();
  const int64_t bytes = EstimateBytes(*program);
  items_.push_front({key, program, bytes});
  by_key_[key] = items_.begin();
  bytes_ += bytes;
  while (bytes_ > budget_ && items_.size() > 1) {
    bytes_ -= items_.back().bytes;
    by_key_.erase(items_.back().key);
    items_.pop_back();
  }
  return program;
}

void ProgramCache::Touch(const Program* program) {
  const auto found =
      std::find_if(items_.begin(), items_.end(), [&](const Item& i) { return i.program.get() == program; });
  if (found != items_.end()) items_.splice(items_.begin(), items_, found);
}

bool ProgramCache::Holds(const Program* program) const {
  return std::any_of(items_.begin(), items_.end(), [&](const Item& i) { return i.program.get() == program; });
}

}  // namespace bindery
