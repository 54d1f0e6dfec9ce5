// Sums, means and maxima over axes of plain float32, their gradients, and SumLike.
//
// Neighbouring axes that are both kept or both reduced are one axis. If the innermost is reduced, each result is a sum of
// contiguous runs; if it is kept, a strip of neighbouring results is accumulated row by row, in double.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "engine/team.h"
#include "executor/kernels/cpu/makers.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/reduce.h"

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
  int64_t kept() const { return kept_; }         // outer positions of results
  int64_t reduced() const { return reduced_; }   // outer positions that are joined
  int64_t elements() const { return kept_ * reduced_ * inner_.extent; }
  int64_t count() const { return reduced_ * (inner_.reduced ? inner_.extent : 1); }   // elements joined to one

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

  std::vector<Axis> axes_;   // all but the innermost
  Axis inner_{};
  int64_t kept_ = 1, reduced_ = 1;
};

enum class Function { kSum, kMean, kMax };

constexpr int64_t kStrip = 512;   // results accumulated side by side

void ReduceRows(const Reduction& r, Function function, const float* x, float* y, int64_t begin, int64_t end) {
  const Loops& loops = BestLoops();
  for (int64_t k = begin; k < end; ++k) {
    const float* row = x + r.KeptOffset(k);
    if (function == Function::kMax) {
      float max = -INFINITY;
      for (int64_t j = 0; j < r.reduced(); ++j) {
        const float next = loops.max(row + r.ReducedOffset(j), r.inner());
        max = next > max || next != next ? next : max;
      }
      y[k] = max;
      continue;
    }
    double sum = 0;
    for (int64_t j = 0; j < r.reduced(); ++j) sum += loops.sum(row + r.ReducedOffset(j), r.inner());
    y[k] = static_cast<float>(function == Function::kMean ? sum / static_cast<double>(r.count()) : sum);
  }
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
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.bind = [r, function](const KernelArgs& args) -> Call {
    return [r, function, x = In(args, 0), y = Out(args, 0)] {
      const bool serial = r.elements() <= kSerialElements;
      if (r.inner_reduced()) {
        ParallelFor(r.kept(), 1, serial ? r.kept() : 0,
                    [&](int64_t begin, int64_t end, int) { ReduceRows(r, function, x, y, begin, end); });
        return;
      }
      const int64_t strips = (r.inner() + kStrip - 1) / kStrip;
      ParallelFor(r.kept() * strips, 1, serial ? r.kept() * strips : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = unit % strips * kStrip;
          ReduceStrip(r, function, x, y, unit / strips, first, std::min(kStrip, r.inner() - first));
        }
      });
    };
  };
  return kernel;
}

}  // namespace

// data -> output: Sum, Mean, Max
MaybeKernel MakeReduce(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const Shape& shape = spec.inputs[0].shape;
  const Reduction r(shape, ReducedAxes(spec.attributes<ReduceAttrs>(), shape));
  const std::string_view op = spec.op->name;
  return ReduceKernel(spec, r, op == "Sum" ? Function::kSum : op == "Mean" ? Function::kMean : Function::kMax);
}

// (data, like: shape only) -> data summed over the axes along which `like` was stretched
MaybeKernel MakeSumLike(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kFloat32) return std::nullopt;
  const Shape& data = spec.inputs[0].shape;
  const Shape& like = spec.outputs[0].shape;
  if (data == like) return MakeView(spec);
  uint32_t reduced = 0;
  for (int axis = 0; axis < data.rank(); ++axis) {
    const int at = axis - (data.rank() - like.rank());
    if (at < 0 || like[at] != data[axis]) reduced |= 1u << axis;
  }
  return ReduceKernel(spec, Reduction(data, reduced), Function::kSum);
}

// (dy, data: shape only) -> dx: dy for every element that was joined, for Mean divided by their number
MaybeKernel MakeReduceGrad(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const Shape& shape = spec.outputs[0].shape;
  const Reduction r(shape, ReducedAxes(spec.attributes<ReduceAttrs>(), shape));
  const double divisor = std::string_view(spec.op->name) == "MeanGrad" ? static_cast<double>(r.count()) : 1;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.bind = [r, factor = static_cast<float>(1 / divisor)](const KernelArgs& args) -> Call {
    return [r, factor, dy = In(args, 0), dx = Out(args, 0)] {
      const Loops& loops = BestLoops();
      const int64_t rows = r.kept() * r.reduced();
      ParallelFor(rows, 1, r.elements() <= kSerialElements ? rows : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t k = row / r.reduced();
          float* to = dx + r.KeptOffset(k) + r.ReducedOffset(row % r.reduced());
          if (r.inner_reduced()) {
            std::fill_n(to, r.inner(), dy[k] * factor);
          } else {
            loops.scale(dy + k * r.inner(), to, r.inner(), factor);
          }
        }
      });
    };
  };
  return kernel;
}

}  // namespace bindery::cpu
