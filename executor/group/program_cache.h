// ProgramCache: programs by everything that decides them, least recently used out first, under a budget. The short last
// batch of every epoch, buckets, evaluation and prediction are hits, and memory does not grow with the number of
// shapes. Belongs to one group, or to several that bind one symbol in one way and share parameters. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "executor/plan/program.h"

namespace bindery {

// Equal keys give equal programs: the signature and the other options, but for the storage formats. (The symbol is the
// group's. So are the formats: they never change once fixed, and programs come here when the group has taken theirs.)
class ProgramKey {
 public:
  explicit ProgramKey(CompileOptions options);
  bool operator==(const ProgramKey& other) const { return hash_ == other.hash_ && options_ == other.options_; }
  size_t hash() const { return hash_; }

 private:
  CompileOptions options_;
  size_t hash_;
};

class ProgramCache {
 public:
  static constexpr int64_t kBytes = int64_t{64} << 20;
  static constexpr int kKept = 16;  // a training's: shares of devices, short last batches, predictions

  // Budget in bytes of host memory, by an estimate; the last `kept` programs stay whatever their size.
  explicit ProgramCache(int64_t budget_bytes = kBytes, int kept = kKept) : budget_(budget_bytes), kept_(kept) {}

  using Make = std::function<std::shared_ptr<const Program>()>;
  // Two threads may make one program at once; the first to be done is kept.
  std::shared_ptr<const Program> Get(const ProgramKey& key, const Make& make);
  // A program that came from here counts as just used, if it is still here.
  void Touch(const Program* program);
  bool Holds(const Program* program) const;

  int size() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(items_.size());
  }
  int64_t bytes() const { return Read(bytes_); }  // estimated
  int64_t hits() const { return Read(hits_); }
  int64_t misses() const { return Read(misses_); }

 private:
  struct Item {
    ProgramKey key;
    std::shared_ptr<const Program> program;
    int64_t bytes;
  };
  int64_t Read(const int64_t& counter) const {
    const std::lock_guard lock(mutex_);
    return counter;
  }
  std::shared_ptr<const Program> Find(const ProgramKey& key);  // nullptr: not here; the lock is held

  mutable std::mutex mutex_;
  std::list<Item> items_;  // most recently used first
  int64_t budget_, bytes_ = 0, hits_ = 0, misses_ = 0;
  int kept_;
};

}  // namespace bindery
