// DeviceFeed: how one device gets its shares of arrays that lie on devices (DeviceArrays). Rows that lie there already,
// or where the device can address them, are copied from where they are, cast as needed; others are fetched first, by
// operations of the copy lane, ahead of the step that needs them. None of them passes through the host's memory, unless
// it comes from there.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "executor/batch.h"
#include "executor/group/split_batch.h"
#include "symbol/infer.h"

namespace bindery {

// The shape of the whole that the pieces make; `type` tells where the samples are. Throws DataError, naming the array,
// unless they fit together and belong to `engine`.
Shape WholeShape(const std::vector<Tensor>& pieces, const ValueType& type, const Engine& engine,
                 const std::string& name);

// An array without batch axis is one piece, or one for each of the `places` with samples: throws DataError, naming it,
// unless it is.
void CheckPieces(const std::vector<Tensor>& pieces, const ValueType& type, size_t places, const std::string& name);

// A value on the host as one piece.
std::vector<Tensor> OnHost(const std::shared_ptr<Engine>& engine, HostTensor value);

class DeviceFeed {
 public:
  // `place` of the device among the `places` with samples.
  DeviceFeed(std::shared_ptr<Engine> engine, Device device, size_t place, size_t places)
      : engine_(std::move(engine)), device_(device), place_(place), places_(places) {}

  // Samples `range` of an array, times `weight`, are to go to `target`, all of it. Pushes what fetches them. What the
  // functions above refuse must not get here.
  void Add(const std::vector<Tensor>& pieces, ValueType type, SampleRange range, const Tensor& target,
           double weight = 1);
  // What Run reads.
  const std::vector<VarPtr>& reads() const { return reads_; }
  void Run(Stream& stream) const;
  // As an operation that changes some of the arrays that `var` stands for, or all, and fails all of them if it cannot.
  void Push(const char* name, const VarPtr& var, bool all = false) const;

 private:
  // `outer` runs of `run` elements, `stride` elements apart.
  struct Rows {
    Tensor array;
    int64_t first = 0, stride = 0;
    char* address() const { return static_cast<char*>(array.address()) + first * SizeOf(array.dtype()); }
    int64_t stride_bytes() const { return stride * SizeOf(array.dtype()); }
  };
  struct Copy {
    Rows from, to;
    int64_t outer = 1, run = 0;
  };
  Rows Fetch(const Copy& copy);

  std::shared_ptr<Engine> engine_;
  Device device_;
  size_t place_, places_;
  std::vector<VarPtr> reads_;
  std::vector<Copy> copies_;
  std::vector<std::pair<Tensor, double>> weights_;  // of targets, where not 1
};

}  // namespace bindery
