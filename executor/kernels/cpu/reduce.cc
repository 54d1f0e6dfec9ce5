// Sums, means and maxima over axes of plain float32, SumTo, and BroadcastTo, which goes the same way back.
//
// Neighbouring axes that are both kept or both reduced are one axis. If the innermost is reduced, each result is a sum
// of contiguous runs; if it is kept, a strip of neighbouring results is accumulated row by row, in double. Where there
// are few results of many elements, threads share one result: it is joined from blocks, which the shape alone decides,
// so that results do not depend on the number of threads.
#include "symbol/ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

class Reduction {
 public:
  // Bit i of `reduced`: axis i of `shape` is reduced.
  Reduction(const Shape& shape, uint32_t reduced) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const bool is_reduced = reduced >> axis & 1u;
      if (shape[axis] == 1) continue;
      if (!axes_.empty() && axes_.back().reduced == is_reduced) {
        axes_.back().extent *= shape[axis];
      } else {
        axes_.push_back({shape[axis], is_reduced, 0});
      }
    }
    if (axes_.empty()) axes_.push_back({1, false, 0});
    int64_t stride = 1;
    for (size_t i = axes_.size(); i-- > 0; stride *= axes_[i].extent) axes_[i].stride = stride;
    inner_ = axes_.back();
    axes_.pop_back();
    for (const Axis& axis : axes_) (axis.reduced ? reduced_ : kept_) *= axis.extent;
  }

  bool inner_reduced() const { return inner_.reduced; }
  int64_t inner() const { return inner_.extent; }
  int64_t kept() const { return kept_; }        // outer positions of results
  int64_t reduced() const { return reduced_; }  // outer positions that are joined
  int64_t elements() const { return kept_ * reduced_ * inner_.extent; }
  int64_t count() const { return reduced_ * (inner_.reduced ? inner_.extent : 1); }  // elements joined to one

  // Offset in the data of an outer kept or reduced position.
  int64_t KeptOffset(int64_t position) const { return Offset(position, false); }
  int64_t ReducedOffset(int64_t position) const { return Offset(position, true); }

 private:
  struct Axis {
    int64_t extent;
    bool reduced;
    int64_t stride;
  };
  int64_t Offset(int64_t position, bool reduced) const {
    int64_t offset = 0;
    for (size_t i = axes_.size(); i-- > 0;) {
      if (axes_[i].reduced != reduced) continue;
      offset += position % axes_[i].extent * axes_[i].stride;
      position /= axes_[i].extent;
    }
    return offset;
  }

  std::vector<Axis> axes_;  // all but the innermost
  Axis inner_{};
  int64_t kept_ = 1, reduced_ = 1;
};

enum class Function { kSum, kMean, kMax };

constexpr int64_t kStrip = 512;  // results accumulated side by side

double Join(Function function, double a, double b) {
  if (function != Function::kMax) return a + b;
  return b > a || b != b ? b : a;  // NaN wins
}

// Results whose elements are contiguous runs, cut into blocks of about kRun elements: some runs, or a part of one.
struct Blocks {
  int64_t runs, length;   // of one block: so many runs of the reduced positions, so many elements of each
  int64_t groups, parts;  // blocks of one result
  int64_t per_result() const { return groups * parts; }

  // Many results are worth no blocks: each is one thread's.
  explicit Blocks(const Reduction& r) {
    constexpr int64_t kMany = 64;
    runs = r.kept() >= kMany ? r.reduced() : std::max<int64_t>(kRun / r.inner(), 1);
    length = r.kept() >= kMany ? r.inner() : std::min<int64_t>(r.inner(), kRun);
    groups = CeilDiv(r.reduced(), runs);
    parts = CeilDiv(r.inner(), length);
  }
  double Reduce(const Reduction& r, Function function, const float* x, int64_t block) const {
    const Loops& loops = BestLoops();
    const int64_t k = block / per_result(), group = block / parts % groups, first = block % parts * length;
    const int64_t n = std::min(length, r.inner() - first), end = std::min((group + 1) * runs, r.reduced());
    double result = function == Function::kMax ? -INFINITY : 0;
    for (int64_t j = group * runs; j < end; ++j) {
      const float* run = x + r.KeptOffset(k) + r.ReducedOffset(j) + first;
      const double next = function == Function::kMax ? static_cast<double>(loops.max(run, n)) : loops.sum(run, n);
      result = Join(function, result, next);
    }
    return result;
  }
};

Kernel ReduceRuns(const KernelSpec& spec, const Reduction& r, Function function) {
  Kernel kernel = PlainKernel(spec, "loop");
  const Blocks blocks(r);
  const double divisor = function == Function::kMean ? static_cast<double>(r.count()) : 1;
  const int64_t n = r.kept() * blocks.per_result();
  const bool whole = blocks.per_result() == 1;
  if (!whole) kernel.scratch_bytes = n * static_cast<int64_t>(sizeof(double));
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = In(args, 0), y = Out(args, 0), results = static_cast<double*>(args.scratch)] {
      ParallelFor(n, 1, r.elements() <= kSerialElements ? n : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t block = begin; block < end; ++block) {
          const double result = blocks.Reduce(r, function, x, block);
          if (whole) {
            y[block] = static_cast<float>(result / divisor);
          } else {
            results[block] = result;
          }
        }
      });
      if (whole) return;
      for (int64_t k = 0; k < r.kept(); ++k) {
        const double* own = results + k * blocks.per_result();
        double result = own[0];
        for (int64_t i = 1; i < blocks.per_result(); ++i) result = Join(function, result, own[i]);
        y[k] = static_cast<float>(result / divisor);
      }
    };
  };
  return kernel;
}

// One strip of results: columns [first, first + n) of the kept position k.
void ReduceStrip(const Reduction& r, Function function, const float* x, float* y, int64_t k, int64_t first, int64_t n) {
  const Loops& loops = BestLoops();
  const float* column = x + r.KeptOffset(k) + first;
  float* to = y + k * r.inner() + first;
  if (function == Function::kMax) {
    std::copy_n(column, n, to);
    for (int64_t j = 1; j < r.reduced(); ++j) loops.max_to(column + r.ReducedOffset(j), to, n);
    return;
  }
  double sums[kStrip] = {};
  for (int64_t j = 0; j < r.reduced(); ++j) loops.add_to(column + r.ReducedOffset(j), sums, n);
  const double divisor = function == Function::kMean ? static_cast<double>(r.count()) : 1;
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(sums[i] / divisor);
}

Kernel ReduceKernel(const KernelSpec& spec, const Reduction& r, Function function) {
  if (r.inner_reduced()) return ReduceRuns(spec, r, function);
  Kernel kernel = PlainKernel(spec, "loop");
  int64_t strip = kStrip;  // narrower ones if there is not one for every thread; that changes no result
  while (strip > 32 && r.kept() * CeilDiv(r.inner(), strip) < spec.threads) strip /= 2;
  const int64_t strips = CeilDiv(r.inner(), strip);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = In(args, 0), y = Out(args, 0)] {
      const bool serial = r.elements() <= kSerialElements;
      ParallelFor(r.kept() * strips, 1, serial ? r.kept() * strips : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = unit % strips * strip;
          ReduceStrip(r, function, x, y, unit / strips, first, std::min(strip, r.inner() - first));
        }
      });
    };
  };
  return kernel;
}

// The axes of `to` along which `from` is stretched, as a bit mask.
uint32_t StretchedAxes(const Shape& from, const Shape& to) {
  uint32_t stretched = 0;
  for (int axis = 0; axis < to.rank(); ++axis) {
    const int at = axis - (to.rank() - from.rank());
    if (at < 0 || from[at] != to[axis]) stretched |= 1u << axis;
  }
  return stretched;
}

// data -> output
template <Function kFunction>
MaybeKernel MakeReduce(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const Shape& shape = spec.inputs[0].shape;
  return ReduceKernel(spec, Reduction(shape, ReducedAxes(spec.attributes<ReduceAttrs>(), shape)), kFunction);
}

// data -> output: the sum over the axes along which the output's shape was stretched to data's
MaybeKernel MakeSumTo(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  if (data == output) return ViewKernel(spec);
  return ReduceKernel(spec, Reduction(data, StretchedAxes(output, data)), Function::kSum);
}

// data -> output, its shape stretched
MaybeKernel MakeBroadcastTo(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  if (data == output) return ViewKernel(spec);
  const Reduction r(output, StretchedAxes(data, output));
  Kernel kernel = PlainKernel(spec, "loop");
  const int64_t length = std::min<int64_t>(r.inner(), kRun), parts = CeilDiv(r.inner(), length);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = In(args, 0), y = Out(args, 0)] {
      const int64_t runs = r.kept() * r.reduced() * parts;
      ParallelFor(runs, 1, r.elements() <= kSerialElements ? runs : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t run = begin; run < end; ++run) {
          const int64_t row = run / parts, k = row / r.reduced(), first = run % parts * length;
          const int64_t n = std::min(length, r.inner() - first);
          float* to = y + r.KeptOffset(k) + r.ReducedOffset(row % r.reduced()) + first;
          if (r.inner_reduced()) {
            std::fill_n(to, n, x[k]);
          } else {
            std::copy_n(x + k * r.inner() + first, n, to);
          }
        }
      });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Sum", MakeReduce<Function::kSum>}, {"Mean", MakeReduce<Function::kMean>},
    {"Max", MakeReduce<Function::kMax>}, {"SumTo", MakeSumTo},
    {"BroadcastTo", MakeBroadcastTo},
};

}  // namespace

KernelRows ReduceKernels() { return kEntries; }

}  // namespace bindery::cpu
