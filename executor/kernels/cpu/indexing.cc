// What is taken and put by index. First all indices become offsets in data, in scratch memory, by the team; what is
// wrong with one is an error before anything is written. Then rows move: whole runs of contiguous elements, by their
// size whatever their type is. Where updates are joined, each thread has a part of the output as its own, rows or
// columns, and takes the updates in their order: the same bits for any number of threads. Single elements, whose
// offsets would be larger than they are, move as soon as some offsets are known, which stay in the nearest cache.
#include "symbol/ops/indexing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/indexed_rows.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// (data, indices), at these inputs -> rows
Kernel Gather(const KernelSpec& spec, const Rows& rows, IndexMode mode, int data = 0, int indices = 1) {
  Kernel kernel = PlainKernel(spec, "loop");
  if (!rows.single()) kernel.scratch_bytes = rows.scratch_bytes();
  const DType dtype = spec.outputs[0].dtype;
  const HostTensor nothing = HostTensor::Full(dtype, {}, mode == IndexMode::kSkip && IsFloat(dtype) ? NAN : 0);
  return OfSize(SizeOf(dtype), [&]<class T>() {
    T empty;
    std::memcpy(&empty, nothing.raw(), sizeof(T));
    if (rows.single()) {
      return WithLoop(std::move(kernel), [=](const Arguments& args) {
        ParallelFor(rows.tuples(), kGrain, kSerialElements / 4, [&](int64_t begin, int64_t end, int) {
          while (begin < end) {  // the elements of one slab
            const int64_t slab = begin / rows.count, next = std::min(end, (slab + 1) * rows.count);
            const T* own = args.in<T>(data) + slab * rows.extent;
            rows.ForPieces(args.inputs[static_cast<size_t>(indices)], begin, next,
                           [&](int64_t first, const int64_t* at, int64_t n) {
                             T* to = args.out<T>(0) + first;
                             for (int64_t c = 0; c < n; ++c) to[c] = at[c] < 0 ? empty : own[at[c]];
                           });
            begin = next;
          }
        });
      });
    }
    return WithLoop(std::move(kernel), [=](const Arguments& args) {
      const int64_t* offsets = rows.Resolve(args, indices);
      const T* from = args.in<T>(data);
      const int64_t inner = rows.inner, slab_size = rows.extent * inner;
      ParallelFor(rows.slabs * rows.count * inner, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        T* to = args.out<T>(0) + begin;
        int64_t row = begin / inner, column = begin % inner;
        while (begin < end) {  // the rows of one slab
          const int64_t slab = row / rows.count, first = row % rows.count;
          const T* own = from + slab * slab_size;
          const int64_t* at = offsets + slab / rows.outer * rows.count;
          for (int64_t c = first; c < rows.count && begin < end; ++c, ++row, column = 0) {
            const int64_t n = std::min(inner - column, end - begin);
            if (at[c] < 0) {
              std::fill_n(to, n, empty);
            } else if (n == 1) {
              *to = own[at[c] + column];
            } else {
              std::memcpy(to, own + at[c] + column, static_cast<size_t>(n) * sizeof(T));
            }
            begin += n;
            to += n;
          }
        }
      });
    });
  });
}

// y = y joined with x, n of them
struct Replace {
  template <class T>
  static void Run(const T* x, T* y, int64_t n) {
    if (n == 1) {
      *y = *x;
    } else {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    }
  }
};
template <class F>
struct JoinBy {
  template <class T>
  static void Run(const T* x, T* y, int64_t n) {
    if constexpr (std::is_floating_point_v<T>) {
      if (n >= kGrain) return BestLoops<T>().template BinaryOf<F>()(y, x, y, n);
    }
    for (int64_t i = 0; i < n; ++i) y[i] = native::Call<F, T>(y[i], x[i]);
  }
};

// `count` updates, `step` elements apart, of each of which n elements go to its offset in data if that is in
// [low, high).
struct Puts {
  const int64_t* offsets;
  int64_t count, low, high, step, n;
};
using PutLoop = void (*)(Puts puts, const std::byte* updates, std::byte* data);
template <class T, class Join>
void Put(Puts puts, const std::byte* updates, std::byte* data) {
  const T* from = reinterpret_cast<const T*>(updates);
  T* to = reinterpret_cast<T*>(data);
  const auto put = [&](auto n) {
    for (int64_t c = 0; c < puts.count; ++c, from += puts.step) {
      const int64_t at = puts.offsets[c];
      if (at >= puts.low && at < puts.high) Join::Run(from, to + at, n);
    }
  };
  if (puts.n == 1) return put(std::integral_constant<int64_t, 1>());
  put(puts.n);
}

// ([data,] indices, updates) -> data with the updates
Kernel ScatterBy(const KernelSpec& spec, const Rows& rows, PutLoop put) {
  Kernel kernel = PlainKernel(spec, "loop");
  const int last = static_cast<int>(spec.inputs.size()) - 1;
  const int64_t size = SizeOf(spec.outputs[0].dtype);
  if (last == 2) kernel.inplace = {{0, 0}};
  if (rows.single() && rows.slabs >= 4 * spec.threads) {  // each thread has some slabs as its own
    return WithLoop(std::move(kernel), [=](const Arguments& args) {
      const int64_t serial = rows.slabs * std::max(rows.count, rows.extent) <= kSerialElements / 4 ? INT64_MAX : 0;
      ParallelFor(rows.slabs, 1, serial, [&](int64_t begin, int64_t end, int) {
        const int64_t bytes = rows.extent * size;
        for (int64_t slab = begin; slab < end; ++slab) {
          std::byte* to = args.out<std::byte>(0) + slab * bytes;
          if (last != 2) {
            std::memset(to, 0, static_cast<size_t>(bytes));
          } else if (const std::byte* from = args.in<std::byte>(0) + slab * bytes; from != to) {
            std::memcpy(to, from, static_cast<size_t>(bytes));
          }
          rows.ForPieces(args.inputs[static_cast<size_t>(last - 1)], slab * rows.count, (slab + 1) * rows.count,
                         [&](int64_t first, const int64_t* at, int64_t n) {
                           put({at, n, 0, rows.extent, 1, 1}, args.in<std::byte>(last) + first * size, to);
                         });
        }
      });
    });
  }
  kernel.scratch_bytes = rows.scratch_bytes();
  // Columns are shared out evenly whatever the indices are, if each thread has some cache lines of every row.
  const bool by_columns = rows.inner * size >= 256 * spec.threads;
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const int64_t* offsets = rows.Resolve(args, last - 1);
    std::byte* to = args.out<std::byte>(0);
    const std::byte* updates = args.in<std::byte>(last);
    const int64_t inner = rows.inner, elements = rows.slabs * rows.extent * inner;
    if (last == 2) {
      ParallelCopy(to, args.inputs[0], elements * size);
    } else {
      ParallelFor(elements, 4096, 16 * 4096, [&](int64_t begin, int64_t end, int) {
        std::memset(to + begin * size, 0, static_cast<size_t>((end - begin) * size));
      });
    }
    // Rows [begin, end) of data, columns [first, first + n) of each.
    const auto put_rows = [&](int64_t begin, int64_t end, int64_t first, int64_t n) {
      for (int64_t slab = begin / rows.extent; begin < end; ++slab, begin = slab * rows.extent) {
        const int64_t low = (begin - slab * rows.extent) * inner;
        const int64_t high = std::min(end - slab * rows.extent, rows.extent) * inner;
        put({offsets + slab / rows.outer * rows.count, rows.count, low, high, inner, n},
            updates + (slab * rows.count * inner + first) * size, to + (slab * rows.extent * inner + first) * size);
      }
    };
    const int64_t all = rows.slabs * rows.extent;
    const int64_t serial = rows.slabs * rows.count * inner <= kSerialElements ? INT64_MAX : 0;
    if (by_columns) {
      ParallelFor(inner, kGrain, serial, [&](int64_t begin, int64_t end, int) {
        if (begin < end) put_rows(0, all, begin, end - begin);
      });
    } else {
      ParallelFor(all, 1, serial, [&](int64_t begin, int64_t end, int) { put_rows(begin, end, 0, inner); });
    }
  });
}

template <class F>
MaybeKernel JoinedScatter(const KernelSpec& spec, const Rows& rows) {
  const PutLoop put = Dispatch(spec.outputs[0].dtype, []<class T>() -> PutLoop {
    if constexpr (std::is_arithmetic_v<T>) return Put<T, JoinBy<F>>;
    return nullptr;  // sums of 16-bit floats are made in float32
  });
  if (!put) return std::nullopt;
  return ScatterBy(spec, rows, put);
}

MaybeKernel Scatter(const KernelSpec& spec, const Rows& rows) {
  switch (spec.attributes<ScatterAttrs>().reduction) {
    case ScatterReduction::kNone: break;
    case ScatterReduction::kAdd: return JoinedScatter<native::fn::Add>(spec, rows);
    case ScatterReduction::kMul: return JoinedScatter<native::fn::Mul>(spec, rows);
    case ScatterReduction::kMax: return JoinedScatter<native::fn::Maximum>(spec, rows);
    case ScatterReduction::kMin: return JoinedScatter<native::fn::Minimum>(spec, rows);
  }
  return ScatterBy(spec, rows,
                   OfSize(SizeOf(spec.outputs[0].dtype), []<class T>() -> PutLoop { return Put<T, Replace>; }));
}

template <bool kTuples>
MaybeKernel MakeTake(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<TakeAttrs>();
  const TakenRows taken = RowsOf(attrs, kTuples, spec.inputs[0].shape, spec.inputs[1].shape);
  return Gather(spec, RowsAt(taken, spec.inputs[1].dtype, {attrs.mode, attrs.padding}), attrs.mode);
}

MaybeKernel MakeEmbedding(const KernelSpec& spec) {
  const IndexMode mode = spec.attributes<EmbeddingAttrs>().mode;
  const TakenRows taken = RowsOf({.mode = mode}, false, spec.inputs[1].shape, spec.inputs[0].shape);
  const Counting counting = {.mode = mode};
  return Gather(spec, RowsAt(taken, spec.inputs[0].dtype, counting), mode, 1, 0);
}

MaybeKernel MakeGatherElements(const KernelSpec& spec) {
  const auto& [axis, mode] = spec.attributes<GatherElementsAttrs>();
  return Gather(
      spec, ElementsAt(spec.inputs[0].shape, spec.inputs[1].shape, axis, spec.inputs[1].dtype, {.mode = mode}), mode);
}

MaybeKernel MakePick(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PickAttrs>();
  const Shape& data = spec.inputs[0].shape;
  const Shape places = data.With(data.Axis(static_cast<int>(attrs.axis)), 1);
  return Gather(spec, ElementsAt(data, places, attrs.axis, spec.inputs[1].dtype, {.mode = attrs.mode}), attrs.mode);
}

MaybeKernel MakeScatterND(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ScatterAttrs>();
  const ValueType& indices = spec.inputs[spec.inputs.size() - 2];
  const TakeAttrs take = {attrs.axis, attrs.batch_dims, attrs.mode, attrs.padding};
  const TakenRows taken = RowsOf(take, true, spec.outputs[0].shape, indices.shape);
  return Scatter(spec, RowsAt(taken, indices.dtype, {attrs.mode, attrs.padding}));
}

MaybeKernel MakeScatterElements(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ScatterAttrs>();
  const ValueType& indices = spec.inputs[spec.inputs.size() - 2];
  return Scatter(spec,
                 ElementsAt(spec.outputs[0].shape, indices.shape, attrs.axis, indices.dtype, {.mode = attrs.mode}));
}

// Each index by itself: the offsets are the places.
Rows PlacesOf(int64_t extent, const ValueType& indices, const Counting& counting) {
  return ElementsAt({extent}, {indices.shape.Elements()}, 0, indices.dtype, counting);
}

MaybeKernel MakeRowNumbers(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RowNumbersAttrs>();
  const Rows rows = PlacesOf(attrs.extent, spec.inputs[0], {attrs.mode, attrs.padding});
  return WithLoop(PlainKernel(spec, "loop"), [rows](const Arguments& args) {
    ParallelFor(rows.tuples(), kGrain, kSerialElements / 4, [&](int64_t begin, int64_t end, int) {
      rows.resolve(args.inputs[0], begin, end, args.out<int64_t>(0) + begin);
    });
  });
}

// First all elements are off, then some are on.
MaybeKernel MakeOneHot(const KernelSpec& spec) {
  const auto attrs = spec.attributes<OneHotAttrs>();
  const DType dtype = spec.outputs[0].dtype;
  HostTensor values(dtype, {2});
  values.Set(0, attrs.off_value);
  values.Set(1, attrs.on_value);
  const AxisView view = ViewAlong(spec.outputs[0].shape, static_cast<int>(attrs.axis));
  const Rows rows = PlacesOf(view.axis, spec.inputs[0], {.mode = IndexMode::kZero, .from_end = attrs.from_end});
  return OfSize(SizeOf(dtype), [&]<class T>() {
    return WithLoop(PlainKernel(spec, "loop"), [=](const Arguments& args) {
      T off_on[2];
      std::memcpy(off_on, values.raw(), sizeof off_on);
      T* y = args.out<T>(0);
      ParallelFor(view.outer * view.axis * view.inner, kGrain, kSerialElements,
                  [&](int64_t begin, int64_t end, int) { std::fill(y + begin, y + end, off_on[0]); });
      ParallelFor(view.outer * view.inner, kGrain, kSerialElements / 8, [&](int64_t begin, int64_t end, int) {
        rows.ForPieces(args.inputs[0], begin, end, [&](int64_t at, const int64_t* places, int64_t n) {
          T* first = y + at / view.inner * view.axis * view.inner;
          int64_t column = at % view.inner;
          for (int64_t i = 0; i < n; ++i) {
            if (places[i] >= 0) first[places[i] * view.inner + column] = off_on[1];
            if (++column < view.inner) continue;
            column = 0;
            first += view.axis * view.inner;
          }
        });
      });
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Take", MakeTake<false>},
    {"GatherND", MakeTake<true>},
    {"Embedding", MakeEmbedding},
    {"GatherElements", MakeGatherElements},
    {"Pick", MakePick},
    {"ScatterND", MakeScatterND},
    {"ScatterElements", MakeScatterElements},
    {"OneHot", MakeOneHot},
    {"RowNumbers", MakeRowNumbers},
};

}  // namespace

KernelRows IndexingKernels() { return kEntries; }

}  // namespace bindery::cpu
