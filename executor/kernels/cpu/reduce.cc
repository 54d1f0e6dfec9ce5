// Reductions over axes of plain data, and SumTo.
//
// Neighbouring axes that are both kept or both reduced are one axis. If the innermost is reduced, each result is a sum
// of contiguous runs; if it is kept, a strip of neighbouring results is accumulated row by row, in double, and so are
// the results of short rows. Where there are few results of many elements, threads share one result: it is joined from
// blocks, which the shape alone decides, so that results do not depend on the number of threads. What joining is, and
// of which elements, is in joining.h.
#include "symbol/ops/reduce.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/joining.h"
#include "executor/kernels/cpu/slices.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/cpu/walk.h"

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
};

// f(offset in the data, number of elements) for the runs of a block.
template <class F>
void ForBlock(const Reduction& r, const Blocks& blocks, int64_t block, const F& f) {
  const int64_t k = block / blocks.per_result(), group = block / blocks.parts % blocks.groups;
  const int64_t first = block % blocks.parts * blocks.length, n = std::min(blocks.length, r.inner() - first);
  const int64_t begin = group * blocks.runs, end = std::min(begin + blocks.runs, r.reduced());
  for (int64_t j = begin; j < end; ++j) f(r.KeptOffset(k) + first + r.ReducedOffset(j), n);
}

// A reduction whose elements are of `size` bytes.
template <class A>
struct Reducer {
  Reduction r;
  int64_t size;
  std::shared_ptr<const Joining<A>> joining;

  const std::byte* Input(const Arguments& args, int64_t element) const {
    return args.in<std::byte>(0) + element * size;
  }
  std::byte* Output(const Arguments& args, int64_t element) const { return args.out<std::byte>(0) + element * size; }

  // n results side by side, n <= kStrip, of `rows` rows that begin at offset(row).
  template <class F>
  void JoinColumns(const std::byte* x, int64_t rows, const F& offset, std::byte* y, int64_t n) const {
    A numbers[kStrip];
    std::fill_n(numbers, n, joining->nothing);
    for (int64_t j = 0; j < rows; ++j) joining->To(x + offset(j) * size, numbers, n, y);
    joining->Finish(numbers, n, y);
  }

  // Results of rows that lie one after the other.
  Kernel ByShortRows(const KernelSpec& spec) const {
    return OfSize(size, [&]<class T>() {
      return WithLoop(PlainKernel(spec, "loop"), [own = *this](const Arguments& args) {
        const int64_t n = own.r.inner();
        ForTiles(own.r.kept(), n, kSerialElements, [&](int64_t first, int64_t rows) {
          TileOfRows<T> tile;
          ToColumns(args.in<T>(0) + first * n, rows, n, tile);
          own.JoinColumns(
              reinterpret_cast<const std::byte*>(tile), n, [](int64_t k) { return k * kTileRows; },
              own.Output(args, first), rows);
        });
      });
    });
  }

  // Results whose elements are contiguous runs.
  Kernel ByRuns(const KernelSpec& spec) const {
    Kernel kernel = PlainKernel(spec, "loop");
    const Blocks blocks(r);
    const int64_t per_result = blocks.per_result(), n = r.kept() * per_result;
    if (per_result > 1) kernel.scratch_bytes = n * static_cast<int64_t>(sizeof(A));
    return WithLoop(std::move(kernel), [=, own = *this](const Arguments& args) {
      const Joining<A>& joining = *own.joining;
      const auto join_blocks = [&](int64_t first, int64_t count, A* numbers) {
        for (int64_t i = 0; i < count; ++i) {
          const std::byte* y = own.Output(args, (first + i) / per_result);
          A number = joining.nothing;
          ForBlock(own.r, blocks, first + i, [&](int64_t at, int64_t length) {
            number = joining.join(number, joining.Row(own.Input(args, at), length, y));
          });
          numbers[i] = number;
        }
      };
      A* const parts = static_cast<A*>(args.scratch);
      ParallelFor(n, 1, own.r.elements() <= kSerialElements ? n : 0, [&](int64_t begin, int64_t end, int) {
        if (per_result > 1) return join_blocks(begin, end - begin, parts + begin);
        A numbers[kStrip];
        for (int64_t count; begin < end; begin += count) {
          count = std::min(kStrip, end - begin);
          join_blocks(begin, count, numbers);
          joining.Finish(numbers, count, own.Output(args, begin));
        }
      });
      for (int64_t k = 0; k < own.r.kept() && per_result > 1; ++k) {
        A* const first = parts + k * per_result;
        A number = std::accumulate(first + 1, first + per_result, *first, joining.join);
        joining.Finish(&number, 1, own.Output(args, k));
      }
    });
  }

  Kernel ByStrips(const KernelSpec& spec) const {
    int64_t strip = kStrip;  // narrower ones if there is not one for every thread; that changes no result
    while (strip > 32 && r.kept() * CeilDiv(r.inner(), strip) < spec.threads) strip /= 2;
    const int64_t strips = CeilDiv(r.inner(), strip), units = r.kept() * strips;
    return WithLoop(PlainKernel(spec, "loop"), [=, own = *this](const Arguments& args) {
      ParallelFor(units, 1, own.r.elements() <= kSerialElements ? units : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = unit % strips * strip;
          const int64_t k = unit / strips, inner = own.r.inner();
          own.JoinColumns(
              own.Input(args, own.r.KeptOffset(k) + first), own.r.reduced(),
              [&](int64_t j) { return own.r.ReducedOffset(j); }, own.Output(args, k * inner + first),
              std::min(strip, inner - first));
        }
      });
    });
  }
};

template <class A>
Kernel ReduceBy(const KernelSpec& spec, const Reduction& r, std::shared_ptr<const Joining<A>> joining) {
  const Reducer<A> reducer{r, SizeOf(spec.inputs[0].dtype), std::move(joining)};
  if (!r.inner_reduced()) return reducer.ByStrips(spec);
  return r.reduced() == 1 && r.inner() <= kShortRow ? reducer.ByShortRows(spec) : reducer.ByRuns(spec);
}

template <class T>
Kernel ReduceReals(const KernelSpec& spec, const Reduction& r, Function function, int64_t divisor) {
  if (function == Function::kMax || function == Function::kMin) {
    return ReduceBy<T>(spec, r, std::make_shared<Extremes<T>>(function == Function::kMax));
  }
  if (function == Function::kLogSumExp) return ReduceBy<double>(spec, r, std::make_shared<ExpSums<T>>());
  return ReduceBy<double>(spec, r, std::make_shared<Sums<T>>(function, divisor));
}

MaybeKernel ReduceKernel(const KernelSpec& spec, const Reduction& r, Function function) {
  const DType dtype = spec.inputs[0].dtype;
  const int64_t divisor = function == Function::kMean ? r.count() : 1;
  if (dtype == DType::kFloat32) return ReduceReals<float>(spec, r, function, divisor);
  if (dtype == DType::kFloat64) return ReduceReals<double>(spec, r, function, divisor);
  if (function == Function::kLogSumExp) return std::nullopt;
  return Dispatch(dtype, [&]<class T>() -> MaybeKernel {
    using Wide = std::conditional_t<std::is_integral_v<T>, Accumulator<T>, float>;
    return ReduceBy<Accumulator<Wide>>(spec, r, std::make_shared<Widening<Wide>>(dtype, function, divisor));
  });
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
  const Shape& shape = spec.inputs[0].shape;
  return ReduceKernel(spec, Reduction(shape, ReducedAxes(spec.attributes<ReduceAttrs>(), shape)), kFunction);
}

// First the maxima, then what is added to them.
MaybeKernel MakeLogSumExp(const KernelSpec& spec) {
  MaybeKernel maxima = MakeReduce<Function::kMax>(spec), sums = MakeReduce<Function::kLogSumExp>(spec);
  if (!sums) return std::nullopt;
  sums->scratch_bytes = std::max(sums->scratch_bytes, maxima->scratch_bytes);
  sums->bind = [first = maxima->bind, second = sums->bind](const KernelArgs& args) -> Call {
    return [first = first(args), second = second(args)] {
      first();
      second();
    };
  };
  return sums;
}

// data -> output: the sum over the axes along which the output's shape was stretched to data's
MaybeKernel MakeSumTo(const KernelSpec& spec) {
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  if (data == output) return ViewKernel(spec);
  return ReduceKernel(spec, Reduction(data, StretchedAxes(output, data)), Function::kSum);
}

constexpr KernelEntry kEntries[] = {
    {"Sum", MakeReduce<Function::kSum>},   {"Mean", MakeReduce<Function::kMean>},
    {"Max", MakeReduce<Function::kMax>},   {"Min", MakeReduce<Function::kMin>},
    {"Prod", MakeReduce<Function::kProd>}, {"L1Norm", MakeReduce<Function::kL1>},
    {"L2Norm", MakeReduce<Function::kL2>}, {"SumSquare", MakeReduce<Function::kSumSquare>},
    {"LogSumExp", MakeLogSumExp},          {"SumTo", MakeSumTo},
};

}  // namespace

KernelRows ReduceKernels() { return kEntries; }

}  // namespace bindery::cpu
