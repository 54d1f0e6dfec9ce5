// Graphs of what operations put on a stream: an operation that puts the same there again is captured, once, and
// launched by one call from then on; and so are several that are joined, where the same ones are again. The first time
// their work is enqueued one by one, so that the driver has loaded its kernels; the second time it is captured. If they
// put something else there, by another piece of staging memory, say, or without what was skipped, that is enqueued one
// by one, and may be repeated beside what was before. A stream knows the 32 lists of operations that came last: graphs
// of others go. Private to engine/cuda.
//
// Nothing but our own list is enqueued between the beginning and the end of a capture, on a stream that nobody else
// knows: so nothing that CUDA refuses there can come in between, and no other thread asks for that stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/cuda/commands.h"

namespace bindery::cuda {

// Of a stream's work: what one node does, say (stream.h).
struct Piece {
  std::string what = {};
  const std::string* part = nullptr;  // of the operation
  bool operator==(const Piece&) const = default;
};
using Pieces = std::vector<Piece>;

class Recording {
 public:
  // Captures `commands`. Throws DeviceError if the driver refuses; nothing is enqueued in either case.
  Recording(const Gpu& gpu, const Commands& commands, const ProgressWords& words);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // As Commands::Enqueue.
  void Launch(CUstream stream, const ProgressWords& words, uint64_t before) const;

 private:
  const Gpu& gpu_;
  const bool numbers_;
  const std::vector<std::shared_ptr<const void>> plans_;  // of the libraries' calls in it
  CUgraphExec graph_ = nullptr;
};

// Those of one stream. Thread safe: its worker finds them, whoever waits for the stream forgets some.
class Recordings {
 public:
  explicit Recordings(const Gpu& gpu) : gpu_(gpu) {}

  struct Found {
    std::shared_ptr<const Pieces> pieces;        // equal to those given
    std::shared_ptr<const Recording> recording;  // null: enqueue it one by one
  };
  using Operations = std::vector<std::shared_ptr<const void>>;
  // For what `operations` have put into `commands` this time.
  Found Find(const Operations& operations, const Commands& commands, const Pieces& pieces, const ProgressWords& words);
  // Lets go of those of operations that are no more.
  void Forget();

 private:
  void EraseExpired();

  struct List {
    Commands commands;
    std::shared_ptr<const Pieces> pieces;
    std::shared_ptr<const Recording> recording = nullptr;
  };
  struct Entry {
    std::vector<std::weak_ptr<const void>> operations;
    bool expired() const {
      return std::ranges::any_of(operations, [](const auto& operation) { return operation.expired(); });
    }
    std::vector<List> lists = {};  // the one that came last is the last
    int replaced = 0;              // lists, since one that was a graph came again
    uint64_t found = 0;            // when it came last
  };
  Entry& EntryOf(const Operations& operations);
  const Gpu& gpu_;
  std::mutex mutex_;
  std::map<std::vector<const void*>, Entry> entries_;
  uint64_t finds_ = 0;
  bool refused_ = false;  // by the driver
};

// Whether work is captured at all, from now on: by default it is, unless the environment has BINDERY_CUDA_GRAPHS=no.
void UseGraphs(bool use);
bool GraphsAreUsed();

}  // namespace bindery::cuda
