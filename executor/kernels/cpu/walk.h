// Walks over several values of one shape, each with strides of its own: along the innermost axis in runs, over the
// others as an odometer, by the team. Neighbouring axes along which all values go on in the same way are one axis.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "base/shape.h"
#include "engine/team.h"

namespace bindery::cpu {

// Longer runs are cut into runs of this many elements, which several threads take.
inline constexpr int64_t kRun = 8192;

template <size_t kValues>
class Walk {
 public:
  using Steps = std::array<int64_t, kValues>;  // or offsets; 0 where a value is stretched, negative where it goes back

  // The next axis, from the outermost to the innermost.
  void Add(int64_t extent, const Steps& steps) {
    if (extent == 1) return;
    bool joins = !axes_.empty();
    for (size_t k = 0; k < kValues && joins; ++k) joins = axes_.back().steps[k] == extent * steps[k];
    if (joins) {
      axes_.back() = {axes_.back().extent * extent, steps};
    } else {
      axes_.push_back({extent, steps});
    }
  }

  // The runs of the elements [begin, end) of the whole, in order, by the calling thread.
  template <class F>
  void ForRunsOf(int64_t begin, int64_t end, const F& run) const {
    if (axes_.empty()) return run(Steps{}, Steps{}, end - begin);
    const Axis inner = axes_.back();
    for (int64_t i = begin; i < end;) {
      const int64_t first = i % inner.extent, n = std::min(inner.extent - first, end - i);
      run(RunAt(i / inner.extent, first), inner.steps, n);
      i += n;
    }
  }

  bool is_one_run() const { return axes_.size() <= 1; }
  Steps inner_steps() const { return axes_.empty() ? Steps{} : axes_.back().steps; }

  // run(offsets, steps, number of elements)
  template <class F>
  void ForRuns(const F& run) const {
    if (axes_.empty()) return run(Steps{}, Steps{}, int64_t{1});
    const Axis inner = axes_.back();
    const int64_t length = std::min(inner.extent, kRun), parts = CeilDiv(inner.extent, length);
    int64_t units = parts;
    for (size_t i = 0; i + 1 < axes_.size(); ++i) units *= axes_[i].extent;
    ParallelFor(units, 1, kSerialElements / length, [&](int64_t begin, int64_t end, int) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = unit % parts * length;
        run(RunAt(unit / parts, first), inner.steps, std::min(length, inner.extent - first));
      }
    });
  }

 private:
  struct Axis {
    int64_t extent;
    Steps steps;
  };
  // The offsets of element `first` of the row of that number; rows are the innermost axis'.
  Steps RunAt(int64_t row, int64_t first) const {
    Steps at{};
    Advance(axes_.back(), first, &at);
    for (size_t i = axes_.size() - 1; i-- > 0; row /= axes_[i].extent) Advance(axes_[i], row % axes_[i].extent, &at);
    return at;
  }
  static void Advance(const Axis& axis, int64_t index, Steps* at) {
    for (size_t k = 0; k < kValues; ++k) (*at)[k] += index * axis.steps[k];
  }

  std::vector<Axis> axes_;
};

// A walk over plain values stretched to the shape `to`, one per shape: in units of `sizes`.
template <size_t kValues>
Walk<kValues> StretchedWalk(const Shape& to, const std::array<Shape, kValues>& shapes,
                            const std::array<int64_t, kValues>& sizes) {
  Walk<kValues> walk;
  for (int axis = 0; axis < to.rank(); ++axis) {
    typename Walk<kValues>::Steps steps;
    for (size_t k = 0; k < kValues; ++k) {
      const int own = axis - to.rank() + shapes[k].rank();
      steps[k] = own < 0 || shapes[k][own] == 1 ? 0 : shapes[k].CountFrom(own + 1) * sizes[k];
    }
    walk.Add(to[axis], steps);
  }
  return walk;
}

}  // namespace bindery::cpu
