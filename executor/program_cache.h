// ProgramCache: programs by everything that decides them, least recently used out first, under a budget. The short last
// batch of every epoch, buckets, evaluation and prediction are hits, and memory does not grow with the number of shapes.
// Shared by the executors of a group. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "executor/program.h"

namespace bindery {

// Everything in `options` as text: equal keys give equal programs. (The symbol is the executor's.)
std::string ProgramKey(const CompileOptions& options);

class ProgramCache {
 public:
  // Budget in bytes of host memory; a program counts as an estimate of its plan and kernels.
  explicit ProgramCache(int64_t budget_bytes = int64_t{256} << 20) : budget_(budget_bytes) {}

  using Make = std::function<std::shared_ptr<const Program>()>;
  std::shared_ptr<const Program> Get(const std::string& key, const Make& make);

  int size() const;
  int64_t hits() const;
  int64_t misses() const;

 private:
  struct Item {
    std::string key;
    std::shared_ptr<const Program> program;
    int64_t bytes;
  };
  mutable std::mutex mutex_;
  std::list<Item> items_;                               // most recently used first
  std::map<std::string, std::list<Item>::iterator> by_key_;
  int64_t budget_, bytes_ = 0, hits_ = 0, misses_ = 0;
};

}  // namespace bindery
