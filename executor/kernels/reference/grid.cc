// GridSample and its gradients: all elements that a place is made of, one after the other.
#include "symbol/ops/grid.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// An element along an axis, -1 for none; its weight, and the slope of that by the number in the grid.
struct AxisTap {
  int64_t index;
  double weight, slope;
};

class AxisPlaces {
 public:
  AxisPlaces(const GridSampleAttrs& attrs, int64_t extent)
      : attrs_(attrs), last_(static_cast<double>(extent - 1)), zeros_(attrs.padding == GridPadding::kZeros),
        reflects_(attrs.padding == GridPadding::kReflection) {}

  std::vector<AxisTap> At(double grid) const {
    const double scale = (attrs_.align_corners ? last_ : last_ + 1) / 2;
    const double raw = (grid + 1) * scale - (attrs_.align_corners ? 0 : 0.5);
    switch (attrs_.mode) {
      case ResizeMode::kNearest: return Nearest(raw);
      case ResizeMode::kLinear: return Linear(raw, scale);
      case ResizeMode::kCubic: break;
    }
    return Cubic(raw, scale);
  }

 private:
  // A zigzag between the first and the last centre, or the edges; and whether it falls.
  double Reflected(double at, bool* falls) const {
    const double low = attrs_.align_corners ? 0 : -0.5, high = last_ - low;
    if (high == low) return at == at ? low : at;
    const double folds = std::floor((at - low) / (high - low)), rest = std::fmod(at - low, high - low);
    const double part = rest < 0 ? rest + (high - low) : rest;
    *falls = std::fmod(folds, 2) != 0;
    return *falls ? high - part : low + part;
  }
  bool IsInside(double at) const { return at >= 0 && at <= last_; }
  // Data go on without end, as the padding has it.
  int64_t IndexOf(double at) const {
    bool falls = false;
    if (reflects_) at = Reflected(at, &falls);
    if (!zeros_ && at == at) at = std::clamp(at, 0.0, last_);
    return IsInside(at) ? static_cast<int64_t>(at) : -1;
  }
  std::vector<AxisTap> Nearest(double at) const {
    bool falls = false;
    if (reflects_) at = Reflected(at, &falls);
    if (!zeros_) at = at == at ? std::clamp(at, 0.0, last_) : 0;
    const double nearest = std::nearbyint(at);
    return {{IsInside(nearest) ? static_cast<int64_t>(nearest) : -1, 1, 0}};
  }
  std::vector<AxisTap> Linear(double at, double scale) const {
    bool falls = false;
    if (reflects_) at = Reflected(at, &falls);
    if (falls) scale = -scale;
    const double low = zeros_ ? -2 : 0, high = last_ - low;
    if (!(at > low && at < high)) {
      scale = at == at ? 0 : at;
      if (at == at) at = std::clamp(at, low, high);
    }
    const double below = std::floor(at), part = at - below;
    const auto element = [&](double place) { return IsInside(place) ? static_cast<int64_t>(place) : -1; };
    return {{element(below), 1 - part, -scale}, {element(below + 1), part, scale}};
  }
  std::vector<AxisTap> Cubic(double at, double scale) const {
    if (!reflects_ && !(at > -3 && at < last_ + 3)) {
      scale = at == at ? 0 : at;
      if (at == at) at = std::clamp(at, -3.0, last_ + 3);
    }
    constexpr double a = -0.75;
    const double below = std::floor(at);
    std::vector<AxisTap> taps;
    for (int k = -1; k <= 2; ++k) {
      const double distance = at - below - k, x = std::abs(distance), side = distance < 0 ? -scale : scale;
      const double weight =
          x <= 1 ? (a + 2) * x * x * x - (a + 3) * x * x + 1 : a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a;
      const double slope = x <= 1 ? 3 * (a + 2) * x * x - 2 * (a + 3) * x : 3 * a * x * x - 10 * a * x + 8 * a;
      taps.push_back({IndexOf(below + k), weight, slope * side});
    }
    return taps;
  }

  GridSampleAttrs attrs_;
  double last_;
  bool zeros_, reflects_;
};

// Calls f(sample, place, offset in a plane of data or -1, weight, slopes along the grid's last axis) for all elements
// of all places.
template <class F>
void ForElements(const GridSampleAttrs& attrs, const Shape& data, const Shape& grid_shape, const double* grid,
                 const F& f) {
  const int space = data.rank() - 2;
  std::vector<AxisPlaces> axes;
  for (int axis = 0; axis < space; ++axis) axes.emplace_back(attrs, data[2 + axis]);
  const int64_t places = grid_shape.Elements() / space / std::max<int64_t>(1, grid_shape[0]);
  for (int64_t row = 0; row < grid_shape[0] * places; ++row) {
    std::vector<std::vector<AxisTap>> taps;
    for (int axis = 0; axis < space; ++axis) taps.push_back(axes[axis].At(grid[row * space + space - 1 - axis]));
    const std::function<void(int, int64_t, double, std::vector<double>)> walk =
        [&](int axis, int64_t offset, double weight, std::vector<double> slopes) {
          if (axis == space) return f(row / places, row % places, offset, weight, slopes);
          for (const AxisTap& tap : taps[axis]) {
            std::vector<double> next = slopes;
            for (double& slope : next) slope *= tap.weight;
            next.insert(next.begin(), weight * tap.slope);  // x is first
            walk(axis + 1, offset < 0 || tap.index < 0 ? -1 : offset * data[2 + axis] + tap.index, weight * tap.weight,
                 next);
          }
        };
    walk(0, 0, 1, {});
  }
}

// (data, grid) -> y. The nearest elements are moved as they are.
MaybeKernel MakeGridSample(const KernelSpec& spec) {
  const auto attrs = spec.attributes<GridSampleAttrs>();
  const Shape data = spec.inputs[0].shape, grid = spec.inputs[1].shape, output = spec.outputs[0].shape;
  if (attrs.mode == ResizeMode::kNearest) {
    return OnBytes(spec, [=, size = SizeOf(spec.inputs[0].dtype), dtype = spec.inputs[1].dtype](const Tensors& t) {
      std::vector<double> places(static_cast<size_t>(grid.Elements()));
      Dispatch(dtype, [&]<class T>() {
        const T* from = reinterpret_cast<const T*>(t.raw_in[1]);
        std::transform(from, from + places.size(), places.begin(), [](T number) { return LoadDouble(number); });
      });
      const auto move = [&](int64_t n, int64_t place, int64_t offset, double, const std::vector<double>&) {
        for (int64_t channel = n * data[1]; channel < (n + 1) * data[1]; ++channel) {
          std::byte* y = t.raw_out[0] + (channel * output.CountFrom(2) + place) * size;
          std::fill_n(y, size, std::byte{0});
          if (offset >= 0) std::copy_n(t.raw_in[0] + (channel * data.CountFrom(2) + offset) * size, size, y);
        }
      };
      ForElements(attrs, data, grid, places.data(), move);
    });
  }
  return InDouble(spec, [=](const Tensors& t) {
    const auto sample = [&](int64_t n, int64_t place, int64_t offset, double weight, const std::vector<double>&) {
      for (int64_t channel = n * data[1]; channel < (n + 1) * data[1]; ++channel) {
        const double x = offset < 0 ? 0 : t.in[0][channel * data.CountFrom(2) + offset];
        t.out[0][channel * output.CountFrom(2) + place] += weight * x;
      }
    };
    ForElements(attrs, data, grid, t.in[1], sample);
  });
}

// (dy, grid) -> dx
MaybeKernel MakeGridSampleGradData(const KernelSpec& spec) {
  const GridSampleAttrs attrs = spec.attributes<GridSampleGradAttrs>();
  const Shape output = spec.inputs[0].shape, grid = spec.inputs[1].shape, data = spec.outputs[0].shape;
  return InDouble(spec, [=](const Tensors& t) {
    const auto add = [&](int64_t n, int64_t place, int64_t offset, double weight, const std::vector<double>&) {
      for (int64_t channel = n * data[1]; channel < (n + 1) * data[1] && offset >= 0; ++channel) {
        t.out[0][channel * data.CountFrom(2) + offset] += weight * t.in[0][channel * output.CountFrom(2) + place];
      }
    };
    ForElements(attrs, data, grid, t.in[1], add);
  });
}

// (dy, data, grid) -> dgrid
MaybeKernel MakeGridSampleGradGrid(const KernelSpec& spec) {
  const auto attrs = spec.attributes<GridSampleAttrs>();
  const Shape output = spec.inputs[0].shape, data = spec.inputs[1].shape, grid = spec.inputs[2].shape;
  return InDouble(spec, [=](const Tensors& t) {
    const auto add = [&](int64_t n, int64_t place, int64_t offset, double, const std::vector<double>& slopes) {
      double sum = 0;
      for (int64_t channel = n * data[1]; channel < (n + 1) * data[1] && offset >= 0; ++channel) {
        sum += t.in[0][channel * output.CountFrom(2) + place] * t.in[1][channel * data.CountFrom(2) + offset];
      }
      double* to = t.out[0] + (n * output.CountFrom(2) + place) * std::ssize(slopes);
      for (size_t i = 0; i < slopes.size(); ++i) {
        if (slopes[i] != 0) to[i] += sum * slopes[i];
      }
    };
    ForElements(attrs, data, grid, t.in[2], add);
  });
}

constexpr KernelEntry kEntries[] = {
    {"GridSample", MakeGridSample},
    {"GridSampleGradData", MakeGridSampleGradData},
    {"GridSampleGradGrid", MakeGridSampleGradGrid},
};

}  // namespace

KernelRows GridKernels() { return kEntries; }

}  // namespace bindery::reference
