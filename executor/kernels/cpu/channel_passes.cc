#include "executor/kernels/cpu/channel_passes.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "engine/team.h"

namespace bindery::cpu {

// A unit is one plane, or as many rows as stay in the nearest cache while all their lanes are visited.
template <class T>
ChannelPasses<T>::ChannelPasses(const ChannelView& view, int threads) : view_(view), threads_(threads) {
  constexpr int64_t kUnit = 4096;
  rows_per_unit_ = view.planes ? view.rows : std::max<int64_t>(kUnit / view.lanes, 16);
  units_per_run_ = view.planes ? 1 : CeilDiv(view.rows, rows_per_unit_);
  units_ = view.outer * (view.planes ? view.channels : view.groups) * units_per_run_;
}

template <class T>
int64_t ChannelPasses<T>::scratch_bytes() const {
  return view_.channels *
         (static_cast<int64_t>(sizeof(double)) * 2 * (threads_ + 1) + static_cast<int64_t>(sizeof(T)) * 5);
}

template <class T>
typename ChannelPasses<T>::Arrays ChannelPasses<T>::In(void* scratch) const {
  const int64_t n = view_.channels;
  Arrays arrays;
  arrays.first = static_cast<double*>(scratch);
  arrays.second = arrays.first + n;
  arrays.mean = reinterpret_cast<T*>(arrays.first + 2 * n * (threads_ + 1));
  arrays.scale = arrays.mean + n;
  arrays.beta = arrays.scale + n;
  arrays.b = arrays.beta + n;
  arrays.c = arrays.b + n;
  return arrays;
}

template <class T>
template <class F>
void ChannelPasses<T>::ForTeam(const F& pass) const {
  const int64_t elements = view_.outer * view_.rows * view_.channels;
  ParallelFor(units_, 1, elements <= kSerialElements ? units_ : 0, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t unit = begin; unit < end; ++unit) {
      if (view_.planes) {
        pass(unit * view_.rows, view_.rows, unit % view_.channels, thread);
        continue;
      }
      const int64_t run = unit / units_per_run_, row = unit % units_per_run_ * rows_per_unit_;
      pass((run * view_.rows + row) * view_.lanes, std::min(rows_per_unit_, view_.rows - row),
           run % view_.groups * view_.lanes, thread);
    }
  });
}

template <class T>
template <class F>
void ChannelPasses<T>::SumByTeam(const Arrays& arrays, const F& sum) const {
  const int64_t n = view_.channels;
  std::fill_n(arrays.first, 2 * n * (threads_ + 1), 0.0);
  ForTeam([&](int64_t offset, int64_t rows, int64_t channel, int thread) {
    double* first = arrays.first + 2 * n * (thread + 1) + channel;
    sum(offset, rows, channel, first, first + n);
  });
  for (int thread = 0; thread < threads_; ++thread) {
    const double* part = arrays.first + 2 * n * (thread + 1);
    for (int64_t i = 0; i < 2 * n; ++i) arrays.first[i] += part[i];
  }
}

template <class T>
void ChannelPasses<T>::Moments(const T* x, const Arrays& arrays) const {
  const LoopsOf<T>& loops = BestLoops<T>();
  const int64_t n = view_.channels;
  // The shift, kept in `mean`: what the first few elements of each channel are on average.
  T* shift = arrays.mean;
  std::fill_n(shift, n, T{0});
  std::fill_n(arrays.first, 2 * n, 0.0);
  const int64_t few = std::min<int64_t>(view_.rows, 32);
  for (int64_t i = 0; i < (view_.planes ? n : view_.groups); ++i) {
    const T* run = x + i * view_.rows * (view_.planes ? 1 : view_.lanes);
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
    shift[i] = static_cast<T>(arrays.first[i] / static_cast<double>(few));
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

template <class T>
void ChannelPasses<T>::GradSums(const T* dy, const T* x, const Arrays& arrays, bool relu) const {
  const LoopsOf<T>& loops = BestLoops<T>();
  SumByTeam(arrays, [&](int64_t offset, int64_t rows, int64_t channel, double* first, double* second) {
    if (view_.planes) {
      double sums[2] = {};
      loops.grad_sums(dy + offset, x + offset, rows, arrays.At(channel), relu, sums);
      *first += sums[0];
      *second += sums[1];
    } else {
      loops.grad_sums_rows(dy + offset, x + offset, rows, view_.lanes, view_.lanes, arrays.From(channel), relu, first,
                           second);
    }
  });
}

template <class T>
void ChannelPasses<T>::Normalize(const T* x, T* y, const Arrays& arrays, bool relu) const {
  const LoopsOf<T>& loops = BestLoops<T>();
  ForTeam([&](int64_t offset, int64_t rows, int64_t channel, int) {
    if (view_.planes) {
      loops.normalize(x + offset, y + offset, rows, arrays.At(channel), relu);
    } else {
      loops.normalize_rows(x + offset, y + offset, rows, view_.lanes, arrays.From(channel), relu);
    }
  });
}

template <class T>
void ChannelPasses<T>::GradInput(const T* dy, const T* x, T* dx, const Arrays& arrays, bool relu) const {
  const LoopsOf<T>& loops = BestLoops<T>();
  ForTeam([&](int64_t offset, int64_t rows, int64_t channel, int) {
    if (view_.planes) {
      loops.grad_input(dy + offset, x + offset, dx + offset, rows, arrays.At(channel), relu);
    } else {
      loops.grad_input_rows(dy + offset, x + offset, dx + offset, rows, view_.lanes, arrays.From(channel), relu);
    }
  });
}

template class ChannelPasses<float>;
template class ChannelPasses<double>;

}  // namespace bindery::cpu
