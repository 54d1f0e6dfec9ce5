// ProgramCache: programs by everything that decides them, least recently used out first, under a budget. The short last
// batch of every epoch, buckets, evaluation and prediction are hits, and memory does not grow with the number of
// shapes. Belongs to one group; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "executor/program.h"

namespace bindery {

// Everything in `options` as text, but for the storage formats: equal keys give equal programs. (The symbol is the
// group's. So are the formats: they never change once fixed, and programs come here when the group has taken theirs.)
std::string ProgramKey(const CompileOptions& options);

class ProgramCache {
 public:
  // Budget in bytes of host memory; a program counts as an estimate of its plan and kernels.
  explicit ProgramCache(int64_t budget_bytes = int64_t{256} << 20) : budget_(budget_bytes) {}

  using Make = std::function<std::shared_ptr<const Program>()>;
  std::shared_ptr<const Program> Get(const std::string& key, const Make& make);
  // A program that came from here counts as just used, if it is still here.
  void Touch(const Program* program);
  bool Holds(const Program* program) const;

  int size() const { return static_cast<int>(items_.size()); }
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  struct Item {
    std::string key;
    std::shared_ptr<const Program> program;
    int64_t bytes;
  };
  std::list<Item> items_;  // most recently used first
  std::map<std::string, std::list<Item>::iterator> by_key_;
  int64_t budget_, bytes_ = 0, hits_ = 0, misses_ = 0;
};

}  // namespace bindery
