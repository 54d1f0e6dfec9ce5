#include "executor/kernels/cpu/channel_passes.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "engine/team.h"

namespace bindery::cpu {

// A unit is one plane, or as many rows as stay in the nearest cache while all their lanes are visited.
ChannelPasses::ChannelPasses(const ChannelView& view, int threads) : view_(view), threads_(threads) {
  constexpr int64_t kUnit = 4096;
  rows_per_unit_ = view.planes ? view.rows : std::max<int64_t>(kUnit / view.lanes, 16);
  units_per_run_ = view.planes ? 1 : CeilDiv(view.rows, rows_per_unit_);
  units_ = view.outer * (view.planes ? view.channels : view.groups) * units_per_run_;
}

int64_t ChannelPasses::scratch_bytes() const {
  return view_.channels *
         (static_cast<int64_t>(sizeof(double)) * 2 * (threads_ + 1) + static_cast<int64_t>(sizeof(float)) * 5);
}

ChannelPasses::Arrays ChannelPasses::In(void* scratch) const {
  const int64_t n = view_.channels;
  Arrays arrays;
  arrays.first = static_cast<double*>(scratch);
  arrays.second = arrays.first + n;
  arrays.mean = reinterpret_cast<float*>(arrays.first + 2 * n * (threads_ + 1));
  arrays.scale = arrays.mean + n;
  arrays.beta = arrays.scale + n;
  arrays.b = arrays.beta + n;
  arrays.c = arrays.b + n;
  return arrays;
}

template <class F>
void ChannelPasses::ForUnits(int64_t begin, int64_t end, const F& f) const {
  for (int64_t unit = begin; unit < end; ++unit) {
    if (view_.planes) {
      f(unit * view_.rows, view_.rows, unit % view_.channels);
      continue;
    }
    const int64_t run = unit / units_per_run_, row = unit % units_per_run_ * rows_per_unit_;
    f((run * view_.rows + row) * view_.lanes, std::min(rows_per_unit_, view_.rows - row),
      run % view_.groups * view_.lanes);
  }
}

template <class F>
void ChannelPasses::ForTeam(const F& pass) const {
  const int64_t elements = view_.outer * view_.rows * view_.channels;
  ParallelFor(units_, 1, elements <= kSerialElements ? units_ : 0, pass);
}

template <class F>
void ChannelPasses::SumByTeam(const Arrays& arrays, const F& sum) const {
  const int64_t n = view_.channels;
  std::fill_n(arrays.first, 2 * n * (threads_ + 1), 0.0);
  ForTeam([&](int64_t begin, int64_t end, int thread) {
    double* first = arrays.first + 2 * n * (thread + 1);
    double* second = first + n;
    ForUnits(begin, end, [&](int64_t offset, int64_t rows, int64_t channel) {
      sum(offset, rows, channel, first + channel, second + channel);
    });
  });
  for (int thread = 0; thread < threads_; ++thread) {
    const double* part = arrays.first + 2 * n * (thread + 1);
    for (int64_t i = 0; i < 2 * n; ++i) arrays.first[i] += part[i];
  }
}

void ChannelPasses::Moments(const float* x, const Arrays& arrays) const {
  const Loops& loops = BestLoops();
  const int64_t n = view_.channels;
  // The shift, kept in `mean`: what the first few elements of each channel are on average.
  float* shift = arrays.mean;
  std::fill_n(shift, n, 0.0f);
  std::fill_n(arrays.first, 2 * n, 0.0);
  const int64_t few = std::min<int64_t>(view_.rows, 32);
  for (int64_t i = 0; i < (view_.planes ? n : view_.groups); ++i) {
    const float* run = x + i * view_.rows * (view_.planes ? 1 : view_.lanes);
    if (view_.planes) {
      double sums[2] = {};
      loops.moments(run, few, 0, sums);
      arrays.first[i] = sums[0];
    } else {
      loops.moments_rows(run, few, view_.lanes, view_.lanes, shift + i * view_.lanes, arrays.first + i * view_.lanes,
                         arrays.second + i * view_.lanes);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    shift[i] = static_cast<float>(arrays.first[i] / static_cast<double>(few));
    if (!std::isfinite(shift[i])) shift[i] = 0;  // infinity less itself would be no number
  }

  SumByTeam(arrays, [&](int64_t offset, int64_t rows, int64_t channel, double* first, double* second) {
    if (view_.planes) {
      double sums[2] = {};
      loops.moments(x + offset, rows, shift[channel], sums);
      *first += sums[0];
      *second += sums[1];
    } else {
      loops.moments_rows(x + offset, rows, view_.lanes, view_.lanes, shift + channel, first, second);
    }
  });
  for (int64_t i = 0; i < n; ++i) {
    const double difference = arrays.first[i] / count();
    arrays.second[i] = std::max(arrays.second[i] - arrays.first[i] * difference, 0.0);
    arrays.first[i] = static_cast<double>(shift[i]) + difference;
  }
}

void ChannelPasses::GradSums(const float* dy, const float* x, const Arrays& arrays, bool relu) const {
  const Loops& loops = BestLoops();
  SumByTeam(arrays, [&](int64_t offset, int64_t rows, int64_t channel, double* first, double* second) {
    if (view_.planes) {
      double sums[2] = {};
      loops.grad_sums(dy + offset, x + offset, rows, arrays.At(channel), relu, sums);
      *first += sums[0];
      *second += sums[1];
    } else {
      const Loops::Channels c = {arrays.mean + channel, arrays.scale + channel, arrays.beta + channel, nullptr,
                                 nullptr};
      loops.grad_sums_rows(dy + offset, x + offset, rows, view_.lanes, view_.lanes, c, relu, first, second);
    }
  });
}

void ChannelPasses::Normalize(const float* x, float* y, const Arrays& arrays, bool relu) const {
  const Loops& loops = BestLoops();
  ForTeam([&](int64_t begin, int64_t end, int) {
    ForUnits(begin, end, [&](int64_t offset, int64_t rows, int64_t channel) {
      if (view_.planes) {
        loops.normalize(x + offset, y + offset, rows, arrays.At(channel), relu);
      } else {
        const Loops::Channels c = {arrays.mean + channel, arrays.scale + channel, arrays.beta + channel, nullptr,
                                   nullptr};
        loops.normalize_rows(x + offset, y + offset, rows, view_.lanes, c, relu);
      }
    });
  });
}

void ChannelPasses::GradInput(const float* dy, const float* x, float* dx, const Arrays& arrays, bool relu) const {
  const Loops& loops = BestLoops();
  ForTeam([&](int64_t begin, int64_t end, int) {
    ForUnits(begin, end, [&](int64_t offset, int64_t rows, int64_t channel) {
      if (view_.planes) {
        loops.grad_input(dy + offset, x + offset, dx + offset, rows, arrays.At(channel), relu);
      } else {
        const Loops::Channels c = {arrays.mean + channel, arrays.scale + channel, arrays.beta + channel,
                                   arrays.b + channel, arrays.c + channel};
        loops.grad_input_rows(dy + offset, x + offset, dx + offset, rows, view_.lanes, c, relu);
      }
    });
  });
}

}  // namespace bindery::cpu
