// What is taken and put by index: element by element, in C order.
#include "symbol/ops/indexing.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// An index in its extent.
struct Counting {
  IndexMode mode;
  int64_t padding = kNoIndex;

  // -1: nowhere
  int64_t PlaceOf(double index, int64_t extent) const {
    const double n = static_cast<double>(extent), below = std::isnan(index) ? 0 : std::floor(index);
    double place = index;
    if (mode == IndexMode::kClip) place = std::fmax(0, std::fmin(below, n - 1));
    if (mode == IndexMode::kWrap) {
      const double rest = std::isinf(index) ? 0 : std::fmod(below, n);
      place = rest < 0 ? rest + n : rest;
    }
    if (mode == IndexMode::kRaise && index < 0) place = index + n;
    if (!(place >= 0 && place < n && place == std::floor(place))) {
      if (mode != IndexMode::kRaise) return -1;
      Throw<DataError>("index {} is not in {}..{}", index, -extent, extent - 1);
    }
    const double skipped = static_cast<double>(padding < 0 && padding != kNoIndex ? padding + extent : padding);
    return place == skipped ? -1 : static_cast<int64_t>(place);
  }
};

// What lies in data, by rows or by elements: f(which, where it begins in data or -1) for each.
struct Rows {
  TakenRows r;
  Counting counting;
  int64_t run() const { return r.inner; }

  template <class At, class F>
  void ForEach(const At& index, const F& f) const {
    const auto k = static_cast<int64_t>(r.extents.size());
    for (int64_t slab = 0; slab < r.batches * r.outer; ++slab) {
      for (int64_t c = 0; c < r.count; ++c) {
        int64_t place = 0;
        for (int64_t i = 0; i < k && place >= 0; ++i) {
          const int64_t next = counting.PlaceOf(index((slab / r.outer * r.count + c) * k + i), r.extents[i]);
          place = next < 0 ? -1 : place * r.extents[i] + next;
        }
        f(slab * r.count + c, place < 0 ? -1 : (slab * r.extent + place) * r.inner);
      }
    }
  }
};

struct Elements {
  Shape indices;
  Strides own, data;  // of the indices, and in data
  int axis;
  int64_t extent;
  Counting counting;
  int64_t run() const { return 1; }

  Elements(const Shape& data_shape, const Shape& index_shape, int64_t along, Counting count)
      : indices(index_shape), own(PlainStrides(index_shape)), data(PlainStrides(data_shape)),
        axis(data_shape.Axis(static_cast<int>(along))), extent(data_shape[axis]), counting(std::move(count)) {}

  template <class At, class F>
  void ForEach(const At& index, const F& f) const {
    Strides others = data;
    others[axis] = 0;
    Walk<2>(indices, {own, others}, [&](const std::array<int64_t, 2>& at) {
      const int64_t place = counting.PlaceOf(index(at[0]), extent);
      f(at[0], place < 0 ? -1 : at[1] + place * data[axis]);
    });
  }
};

// (data, indices), at these inputs -> what is taken
template <class Places>
MaybeKernel Gather(const KernelSpec& spec, const Places& places, int data = 0, int indices = 1) {
  const DType dtype = spec.outputs[0].dtype;
  const bool has_nan = places.counting.mode == IndexMode::kSkip && IsFloat(dtype);
  const HostTensor nothing = HostTensor::Full(dtype, {}, has_nan ? NAN : 0);
  return OnBytes(spec, [=, size = SizeOf(dtype), index_dtype = spec.inputs[indices].dtype](const Tensors& t) {
    const auto index = [&](int64_t i) {
      return Dispatch(index_dtype,
                      [&]<class T>() { return LoadDouble(reinterpret_cast<const T*>(t.raw_in[indices])[i]); });
    };
    places.ForEach(index, [&](int64_t i, int64_t at) {
      for (int64_t k = 0; k < places.run(); ++k) {
        const void* from = at < 0 ? nothing.raw() : t.raw_in[data] + (at + k) * size;
        std::memcpy(t.raw_out[0] + (i * places.run() + k) * size, from, static_cast<size_t>(size));
      }
    });
  });
}

double Join(ScatterReduction reduction, double a, double b) {
  switch (reduction) {
    case ScatterReduction::kNone: return b;
    case ScatterReduction::kAdd: return a + b;
    case ScatterReduction::kMul: return a * b;
    case ScatterReduction::kMax: return b > a || b != b ? b : a;
    case ScatterReduction::kMin: return b < a || b != b ? b : a;
  }
  return b;
}

// ([data,] indices, updates) -> data with the updates
template <class Places>
MaybeKernel Scatter(const KernelSpec& spec, const Places& places) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return Wrapping(spec, [=, reduction = spec.attributes<ScatterAttrs>().reduction](const Tensors& t) {
    const size_t last = t.in.size() - 1;
    if (last == 2) std::copy_n(t.in[0], n, t.out[0]);
    places.ForEach([&](int64_t i) { return t.in[last - 1][i]; },
                   [&](int64_t i, int64_t at) {
                     for (int64_t k = 0; k < places.run() && at >= 0; ++k) {
                       double& y = t.out[0][at + k];
                       y = Join(reduction, y, t.in[last][i * places.run() + k]);
                     }
                   });
  });
}

template <bool kTuples>
MaybeKernel MakeTake(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<TakeAttrs>();
  return Gather(spec,
                Rows{RowsOf(attrs, kTuples, spec.inputs[0].shape, spec.inputs[1].shape), {attrs.mode, attrs.padding}});
}

MaybeKernel MakeEmbedding(const KernelSpec& spec) {
  const IndexMode mode = spec.attributes<EmbeddingAttrs>().mode;
  const Rows rows{RowsOf({.mode = mode}, false, spec.inputs[1].shape, spec.inputs[0].shape), {.mode = mode}};
  return Gather(spec, rows, 1, 0);
}

MaybeKernel MakeGatherElements(const KernelSpec& spec) {
  const auto& [axis, mode] = spec.attributes<GatherElementsAttrs>();
  return Gather(spec, Elements(spec.inputs[0].shape, spec.inputs[1].shape, axis, {.mode = mode}));
}

MaybeKernel MakePick(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PickAttrs>();
  const Shape& data = spec.inputs[0].shape;
  return Gather(
      spec, Elements(data, data.With(data.Axis(static_cast<int>(attrs.axis)), 1), attrs.axis, {.mode = attrs.mode}));
}

MaybeKernel MakeScatterND(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ScatterAttrs>();
  const Shape &data = spec.outputs[0].shape, &indices = spec.inputs[spec.inputs.size() - 2].shape;
  const TakeAttrs take = {attrs.axis, attrs.batch_dims, attrs.mode, attrs.padding};
  return Scatter(spec, Rows{RowsOf(take, true, data, indices), {attrs.mode, attrs.padding}});
}

MaybeKernel MakeScatterElements(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ScatterAttrs>();
  return Scatter(spec, Elements(spec.outputs[0].shape, spec.inputs.back().shape, attrs.axis, {.mode = attrs.mode}));
}

MaybeKernel MakeRowNumbers(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RowNumbersAttrs>();
  const Counting counting{attrs.mode, attrs.padding};
  return InDouble(spec, [=, extent = attrs.extent, n = spec.outputs[0].shape.Elements()](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = static_cast<double>(counting.PlaceOf(t.in[0][i], extent));
  });
}

MaybeKernel MakeOneHot(const KernelSpec& spec) {
  const auto attrs = spec.attributes<OneHotAttrs>();
  const AxisView view = ViewAlong(spec.outputs[0].shape, static_cast<int>(attrs.axis));
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < view.outer * view.axis * view.inner; ++i) {
      const double index = t.in[0][i / view.inner / view.axis * view.inner + i % view.inner];
      const double place = attrs.from_end && index < 0 ? index + static_cast<double>(view.axis) : index;
      t.out[0][i] = place == static_cast<double>(i / view.inner % view.axis) ? attrs.on_value : attrs.off_value;
    }
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

}  // namespace bindery::reference
