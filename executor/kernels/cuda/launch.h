// Kernels of operators on GPUs, for their makers: launches of our own kernels at addresses that are known at bind.
//
// A Call puts them on the stream, with the same arguments each time: nothing is looked at on the host. Values are plain;
// an opaque state is of the family "cuda".
#pragma once

#include <concepts>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/stream.h"
#include "engine/memory/storage.h"
#include "executor/kernel.h"
#include "executor/kernels/cuda/args.h"

namespace bindery::cuda {

// What one call does, while it is bound.
class Launches {
 public:
  Launches(const KernelArgs& args, const KernelSpec& spec);
  Launches(const KernelArgs& args, std::string what);  // of no operator

  // Of a kernel that takes Args, by at least so many threads together; none: no launch.
  template <class Args>
  void Add(const Args& args, int64_t threads) {
    if (threads <= 0) return;
    if constexpr (requires { args.faults; }) {
      if (args.faults.faults) {
        work_.push_back([&stream = stream_, what = what_] { stream.NumberPiece(what); });
      }
    }
    AddBytes(Args::kImage, Args::kName, &args, sizeof args, threads);
  }
  // Of an image that was compiled for this GPU, and lives as long as the process.
  template <class Args>
  void AddOf(const unsigned long long* image, const Args& args, int64_t threads) {
    AddBytes(image, Args::kName, &args, sizeof args, threads);
  }
  // By so many blocks.
  template <class Args>
  void AddBlocks(const Args& args, int64_t blocks) {
    Add(args, blocks * kThreadsOfBlock);
  }
  // Rows of a kernel that works on them.
  template <class Args>
  void AddRows(const Args& args) {
    args.rows.by_block ? AddBlocks(args, args.rows.count) : Add(args, args.rows.count);
  }
  // Whatever else a stream is asked for, in the name of the node.
  void Add(std::function<void(CudaStream&)> work);
  // Of a library: the same plan at the same addresses each time (engine/cuda/commands.h).
  void AddCall(LibraryFunction function, const char* name, std::shared_ptr<const void> plan,
               std::vector<void*> addresses);
  void Copy(const void* from, void* to, int64_t bytes);  // nothing if they are the same
  void Fill(DType dtype, void* to, int64_t n, double value);
  void Cast(Source from, Target to, int64_t n);

  // A table in the device's memory, for as long as the call lives; written now. Null if it is empty.
  template <class T>
  const T* Constant(const std::vector<T>& values) {
    return static_cast<const T*>(Constant(values.data(), std::ssize(values) * static_cast<int64_t>(sizeof(T))));
  }
  const void* Constant(const void* values, int64_t bytes);

  Source in(size_t i) const;
  Target out(size_t o) const;  // null if nobody reads it
  // Of the operator's slots, in their order, those that the node has; the others' are left as they are.
  void Read(std::initializer_list<Source*> inputs) const;
  void Write(std::initializer_list<Target*> outputs) const;
  char* scratch(int64_t offset = 0) const { return static_cast<char*>(args_.scratch) + offset; }
  const StepBlock* step() const { return args_.step; }
  CudaStream& stream() const { return stream_; }
  FaultRing faults() const;  // told to the host, and to the step, if it is of one

  Call Finish() &&;

 private:
  static constexpr int64_t kThreadsOfBlock = 256;
  void AddBytes(const unsigned long long* image, const char* name, const void* args, size_t bytes, int64_t threads);

  const KernelArgs& args_;
  const KernelSpec* const spec_;
  CudaStream& stream_;
  std::string what_;
  std::vector<std::function<void()>> work_;
  std::vector<std::shared_ptr<const Chunk>> constants_;
};

// A kernel whose inputs and outputs are plain, but for states of ours. `bind` adds the launches.
Kernel OwnKernel(const KernelSpec& spec, std::function<void(Launches&)> bind, const char* implementation = "own");
// The operator's pairs that may share memory: of one type, or at least of elements of one size.
std::vector<InplacePair> PairsOfOneSize(const KernelSpec& spec);
// The same row of a kernel that computes with floats alone: it declines others, as its first input or as its output.
template <KernelMaker kMake>
MaybeKernel OfFloats(const KernelSpec& spec) {
  return IsFloat(spec.inputs[0].dtype) && IsFloat(spec.outputs[0].dtype) ? kMake(spec) : std::nullopt;
}
Format StateFormat(int64_t bytes);
bool IsState(const Format& format);
// What floats of a type are computed with (values.h): float32, or float64.
DType ValueOf(DType dtype);

// ---- geometry ----

Grid GridOf(const Shape& shape);
Strides PlainStrides(const Shape& shape);
// Of `shape` stretched to `to`, aligned at the last axis: 0 where it is stretched.
Strides StretchedStrides(const Shape& shape, const Shape& to);
// Joins axes that lie behind each other in all strides, and drops extents of 1: the same places in the same order.
void JoinAxes(Grid* grid, std::initializer_list<Strides*> strides);
// By blocks where rows are long enough, or few.
Rows RowsOf(int64_t count, int64_t length, int64_t stride = 1);
// More than one where there are too few rows for a GPU and they are long: as the shape has it, so that the same sums are
// taken everywhere.
struct RowParts {
  int64_t count = 1, length = 0;  // of each row; elements of each but the last, which may have fewer
};
RowParts PartsOf(int64_t rows, int64_t length);
// Of kernels that work on parts of rows (values.h): makes rows of `length` elements parts, where blocks take them.
template <class Args>
void SplitRows(Args* args, int64_t length) {
  if (!args->rows.by_block) return;
  const RowParts parts = PartsOf(args->rows.count, length);
  args->parts = parts.count;
  args->length = parts.length;
  args->rows.count *= parts.count;
}
template <class Args>
int64_t ScratchOfParts(const Args& args) {
  return args.parts > 1 ? args.rows.count * Args::kPartial : 0;
}
// What each part's elements give first, if there are several; scratch begins with it.
template <class Args>
void AddParts(Launches& launches, Args args) {
  if (args.parts > 1) {
    args.partial = launches.scratch();
    args.stage = Stage::kParts;
    launches.AddRows(args);
    args.stage = Stage::kEnd;
  }
  launches.AddRows(args);
}

}  // namespace bindery::cuda
