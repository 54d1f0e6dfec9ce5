// GridSample and its gradients. Of some places at a time, where their elements are in a plane of data and with which
// weights; then channel after channel by these tables. Each sum is one thread's, in one order.
#include "symbol/ops/grid.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/sampling.h"

namespace bindery::cpu {
namespace {

constexpr int kBlock = 64;  // places

struct SampledShape {
  int64_t samples, channels, plane = 1, places = 1;
  std::array<SampledAxis, 3> axes;  // of data, from the first that is sampled on

  SampledShape(const GridSampleAttrs& attrs, const Shape& data, const Shape& output)
      : samples(data[0]), channels(data[1]), plane(data.CountFrom(2)), places(output.CountFrom(2)) {
    for (int axis = 2; axis < data.rank(); ++axis) {
      axes[axis - 2] = {data[axis], static_cast<Outside>(attrs.padding), attrs.align_corners};
    }
  }
  int64_t blocks() const { return CeilDiv(places, int64_t{kBlock}); }
};

template <Sampling kSampling, int kSpace>
constexpr int CountOfTaps() {
  int taps = 1;
  for (int axis = 0; axis < kSpace; ++axis) taps *= TapsAlongAxis(kSampling);
  return taps;
}

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, T>>;
template <class T>
T Masked(T x, BitsOf<T> mask) {
  return std::bit_cast<T>(std::bit_cast<BitsOf<T>>(x) & mask);
}

// What a block of places is made of.
template <class T, Sampling kSampling, int kSpace>
struct BlockTable {
  static constexpr int kAlong = TapsAlongAxis(kSampling), kTaps = CountOfTaps<kSampling, kSpace>();
  int count;  // of places
  std::array<std::array<int32_t, kBlock>, kTaps> offset;
  std::array<std::array<BitsOf<T>, kBlock>, kTaps> inside;  // all bits, or none
  std::array<std::array<T, kBlock>, kTaps> weight;
  // By axes: what a gradient by the grid is made of.
  std::array<std::array<std::array<T, kBlock>, kAlong>, kSpace> axis_weight, axis_slope;

  // Which tap along an axis a tap is.
  static constexpr int Along(int tap, int axis) {
    for (int later = kSpace - 1; later > axis; --later) tap /= kAlong;
    return tap % kAlong;
  }

  // Of places from `first` on, by their rows of the grid (places, kSpace), where x is first.
  void Fill(const SampledShape& shape, const T* grid, int64_t first) {
    const int n = static_cast<int>(std::min<int64_t>(kBlock, shape.places - first));
    count = n;
    offset = {};
    for (auto& of_tap : inside) of_tap.fill(~BitsOf<T>{0});
    for (int axis = 0; axis < kSpace; ++axis) {
      const SampledAxis& own = shape.axes[axis];
      const T* const numbers = grid + first * kSpace + kSpace - 1 - axis;
      std::array<T, kBlock> at, slope;
      switch (own.outside) {
        case Outside::kZeros: Locate<Outside::kZeros>(own, numbers, &at, &slope); break;
        case Outside::kBorder: Locate<Outside::kBorder>(own, numbers, &at, &slope); break;
        case Outside::kReflection: Locate<Outside::kReflection>(own, numbers, &at, &slope); break;
      }
      std::array<std::array<int32_t, kBlock>, kAlong> index;
      std::array<std::array<BitsOf<T>, kBlock>, kAlong> mask;
      for (int m = 0; m < n; ++m) {
        const auto taps = TapsOf<kSampling, int32_t>(own, PlaceOnAxis<T>{at[m], slope[m]});
        for (int k = 0; k < kAlong; ++k) {
          index[k][m] = taps.index[k];
          mask[k][m] = BitsOf<T>{0} - taps.inside[k];
          axis_weight[axis][k][m] = taps.weight[k];
          axis_slope[axis][k][m] = taps.slope[k];
        }
      }
      const auto extent = static_cast<int32_t>(shape.axes[axis].extent);
      for (int tap = 0; tap < kTaps; ++tap) {
        const int k = Along(tap, axis);
        for (int m = 0; m < n; ++m) {
          offset[tap][m] = offset[tap][m] * extent + index[k][m];
          inside[tap][m] &= mask[k][m];
          weight[tap][m] = axis == 0 ? axis_weight[axis][k][m] : weight[tap][m] * axis_weight[axis][k][m];
        }
      }
    }
  }
  // One loop for each way, as far as vectors go.
  template <Outside kOutside>
  void Locate(const SampledAxis& axis, const T* numbers, std::array<T, kBlock>* at, std::array<T, kBlock>* slope) {
    const SampledAxis own{axis.extent, kOutside, axis.align_corners};
    for (int m = 0, n = count; m < n; ++m) {
      const PlaceOnAxis<T> place = PlaceAt<kSampling>(own, numbers[m * kSpace]);
      (*at)[m] = place.at;
      (*slope)[m] = place.slope;
    }
  }
  bool AreAllInside() const {
    BitsOf<T> all = ~BitsOf<T>{0};
    for (const auto& of_tap : inside) {
      for (const BitsOf<T> one : of_tap) all &= one;
    }
    return all != 0;
  }
  // The slope of a tap's weight along an axis.
  T Slope(int tap, int axis, int m) const {
    T slope = axis_slope[axis][Along(tap, axis)][m];
    for (int other = 0; other < kSpace; ++other) {
      if (other != axis) slope *= axis_weight[other][Along(tap, other)][m];
    }
    return slope;
  }
};

// Units of work, each of so many loads of elements, shared out.
template <class F>
void ForUnits(int64_t units, int64_t loads, const F& unit) {
  const int64_t serial = kSerialElements / std::max<int64_t>(1, loads);
  ParallelFor(units, 1, serial, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) unit(i);
  });
}

// y = the sum of the elements at a place, each with its weight.
template <bool kMasked, class Table, class T>
void SampleChannel(const Table& table, const T* x, T* y) {
  for (int m = 0; m < table.count; ++m) {
    T sum = 0;
    for (int tap = 0; tap < Table::kTaps; ++tap) {
      T element = x[table.offset[tap][m]];
      if constexpr (kMasked) element = Masked(element, table.inside[tap][m]);
      sum += table.weight[tap][m] * element;
    }
    y[m] = sum;
  }
}

// Elements as they are.
template <class Table, class Unit>
void MoveChannel(const Table& table, const Unit* x, Unit* y) {
  for (int m = 0; m < table.count; ++m) {
    const auto inside = static_cast<Unit>(Unit{0} - static_cast<Unit>(table.inside[0][m] & 1));
    y[m] = x[table.offset[0][m]] & inside;
  }
}

template <class Element, class T, Sampling kSampling, int kSpace>
void Sample(const SampledShape& shape, const Arguments& args) {
  using Table = BlockTable<T, kSampling, kSpace>;
  constexpr int64_t kChannels = 32;  // of a unit: enough that its table is worth while
  const int64_t parts = CeilDiv(shape.channels, kChannels), blocks = shape.blocks();
  const int64_t loads = Table::kTaps * std::min(shape.channels, kChannels) * std::min<int64_t>(kBlock, shape.places);
  ForUnits(shape.samples * blocks * parts, loads, [&](int64_t unit) {
    const int64_t sample = unit / blocks / parts, first = unit % blocks * kBlock;
    Table table;
    table.Fill(shape, args.in<T>(1) + sample * shape.places * kSpace, first);
    const bool inside = table.AreAllInside();
    const int64_t begin = unit / blocks % parts * kChannels, end = std::min(begin + kChannels, shape.channels);
    for (int64_t channel = sample * shape.channels + begin; channel < sample * shape.channels + end; ++channel) {
      const Element* x = args.in<Element>(0) + channel * shape.plane;
      Element* y = args.out<Element>(0) + channel * shape.places + first;
      if constexpr (kSampling == Sampling::kNearest) {
        MoveChannel(table, x, y);
      } else {
        inside ? SampleChannel<false>(table, x, y) : SampleChannel<true>(table, x, y);
      }
    }
  });
}

// A plane of data is one thread's: places may have elements in common.
template <class T, Sampling kSampling, int kSpace>
void GradData(const SampledShape& shape, int threads, const Arguments& args) {
  using Table = BlockTable<T, kSampling, kSpace>;
  const int64_t parts = std::clamp<int64_t>(CeilDiv(2 * int64_t{threads}, shape.samples), 1, shape.channels);
  const int64_t most = CeilDiv(shape.channels, parts);
  ForUnits(shape.samples * parts, most * (shape.places * Table::kTaps + shape.plane), [&](int64_t unit) {
    const int64_t sample = unit / parts, begin = std::min(unit % parts * most, shape.channels),
                  end = std::min(begin + most, shape.channels);
    T* planes = args.out<T>(0) + (sample * shape.channels + begin) * shape.plane;
    std::fill_n(planes, (end - begin) * shape.plane, T{0});
    Table table;
    for (int64_t first = 0; first < shape.places && begin < end; first += kBlock) {
      table.Fill(shape, args.in<T>(1) + sample * shape.places * kSpace, first);
      const T* dy = args.in<T>(0) + (sample * shape.channels + begin) * shape.places + first;
      for (int64_t channel = begin; channel < end; ++channel, dy += shape.places) {
        T* dx = planes + (channel - begin) * shape.plane;
        for (int m = 0; m < table.count; ++m) {
          for (int tap = 0; tap < Table::kTaps; ++tap) {
            dx[table.offset[tap][m]] += Masked(table.weight[tap][m] * dy[m], table.inside[tap][m]);
          }
        }
      }
    }
  });
}

// First the sums of dy x over the channels, for each tap, in double: what slopes are made of is small beside them.
template <class T, Sampling kSampling, int kSpace>
void GradGrid(const SampledShape& shape, const Arguments& args) {
  using Table = BlockTable<T, kSampling, kSpace>;
  const int64_t blocks = shape.blocks();
  const int64_t loads = Table::kTaps * shape.channels * std::min<int64_t>(kBlock, shape.places);
  ForUnits(shape.samples * blocks, loads, [&](int64_t unit) {
    const int64_t sample = unit / blocks, first = unit % blocks * kBlock, rows = sample * shape.places;
    Table table;
    table.Fill(shape, args.in<T>(2) + rows * kSpace, first);
    std::array<std::array<double, kBlock>, Table::kTaps> sums{};
    for (int64_t channel = sample * shape.channels; channel < (sample + 1) * shape.channels; ++channel) {
      const T* dy = args.in<T>(0) + channel * shape.places + first;
      const T* x = args.in<T>(1) + channel * shape.plane;
      for (int tap = 0; tap < Table::kTaps; ++tap) {
        const auto& offset = table.offset[tap];
        const auto& inside = table.inside[tap];
        for (int m = 0; m < table.count; ++m) {
          const T own = Masked(dy[m], inside[m]), element = Masked(x[offset[m]], inside[m]);
          sums[tap][m] += static_cast<double>(own) * static_cast<double>(element);
        }
      }
    }
    T* grid = args.out<T>(0) + (rows + first) * kSpace;
    for (int m = 0; m < table.count; ++m) {
      for (int axis = 0; axis < kSpace; ++axis) {
        double slope = 0;
        for (int tap = 0; tap < Table::kTaps; ++tap) {
          const T own = table.Slope(tap, axis, m);
          if (own != 0) slope += sums[tap][m] * static_cast<double>(own);
        }
        grid[m * kSpace + kSpace - 1 - axis] = static_cast<T>(slope);
      }
    }
  });
}

// f.operator()<kSampling, kSpace>(shape) for what there is.
template <class F>
MaybeKernel OfSampling(const GridSampleAttrs& attrs, const Shape& data, const Shape& output, const F& f) {
  const SampledShape shape(attrs, data, output);
  if (shape.plane > std::numeric_limits<int32_t>::max() / 2) return std::nullopt;
  const bool flat = data.rank() == 4;
  switch (attrs.mode) {
    case ResizeMode::kNearest:
      return flat ? f.template operator()<Sampling::kNearest, 2>(shape)
                  : f.template operator()<Sampling::kNearest, 3>(shape);
    case ResizeMode::kLinear:
      return flat ? f.template operator()<Sampling::kLinear, 2>(shape)
                  : f.template operator()<Sampling::kLinear, 3>(shape);
    case ResizeMode::kCubic: break;
  }
  return f.template operator()<Sampling::kCubic, 2>(shape);
}

template <class T>
MaybeKernel MakeSample(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype;
  return OfSampling(spec.attributes<GridSampleAttrs>(), spec.inputs[0].shape, spec.outputs[0].shape,
                    [&]<Sampling kSampling, int kSpace>(const SampledShape& shape) -> MaybeKernel {
                      const auto kernel = [&]<class Element>() {
                        return WithLoop(PlainKernel(spec, "loop"), [shape](const Arguments& args) {
                          Sample<Element, T, kSampling, kSpace>(shape, args);
                        });
                      };
                      if constexpr (kSampling == Sampling::kNearest) {
                        return OfSize(SizeOf(dtype), kernel);
                      } else {
                        return kernel.template operator()<T>();
                      }
                    });
}

template <class T>
MaybeKernel MakeGradData(const KernelSpec& spec) {
  if (spec.outputs[0].dtype != spec.inputs[1].dtype) return std::nullopt;  // integers, whose grid is of floats
  return OfSampling(spec.attributes<GridSampleGradAttrs>(), spec.outputs[0].shape, spec.inputs[0].shape,
                    [&]<Sampling kSampling, int kSpace>(const SampledShape& shape) -> MaybeKernel {
                      return WithLoop(PlainKernel(spec, "loop"),
                                      [shape, threads = spec.threads](const Arguments& args) {
                                        GradData<T, kSampling, kSpace>(shape, threads, args);
                                      });
                    });
}

template <class T>
MaybeKernel MakeGradGrid(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != spec.inputs[2].dtype) return std::nullopt;
  return OfSampling(spec.attributes<GridSampleAttrs>(), spec.inputs[1].shape, spec.inputs[0].shape,
                    [&]<Sampling kSampling, int kSpace>(const SampledShape& shape) -> MaybeKernel {
                      return WithLoop(PlainKernel(spec, "loop"),
                                      [shape](const Arguments& args) { GradGrid<T, kSampling, kSpace>(shape, args); });
                    });
}

// By the type of the grid.
constexpr KernelEntry kEntries[] = {
    {"GridSample", OfReals<MakeSample<float>, MakeSample<double>, 1>},
    {"GridSampleGradData", OfReals<MakeGradData<float>, MakeGradData<double>, 1>},
    {"GridSampleGradGrid", OfReals<MakeGradGrid<float>, MakeGradGrid<double>, 2>},
};

}  // namespace

KernelRows GridKernels() { return kEntries; }

}  // namespace bindery::cpu
