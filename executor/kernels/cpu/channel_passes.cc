#include "executor/kernels/cpu/channel_passes.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "engine/kernels/flat.h"
#include "engine/team.h"

namespace bindery::cpu {

namespace {

// Elements that stay in the nearest cache; and so many that flat::Cast converts them in the calling thread.
constexpr int64_t kUnit = 4096;
static_assert(kUnit <= kSerialElements);

constexpr int64_t kFew = 32;  // rows

}  // namespace

// A unit is one plane, or as many rows as stay in the nearest cache while all their lanes are visited; of a plane that
// is to be converted, a part. No more than there are: what is converted takes memory by the unit.
template <class T, class E>
ChannelPasses<T, E>::ChannelPasses(const ChannelView& view, int threads)
    : view_(view), threads_(threads), lanes_(view.planes ? 1 : view.lanes),
      groups_(view.planes ? view.channels : view.groups) {
  const int64_t all = std::max<int64_t>(view.rows, 1);
  rows_per_unit_ = view.planes && !kConverts ? all : std::min(all, std::max(kUnit / lanes_, kConverts ? kFew : 16));
  units_per_run_ = CeilDiv(view.rows, rows_per_unit_);
  units_ = view.outer * groups_ * units_per_run_;
}

template <class T, class E>
auto ChannelPasses<T, E>::Read(const E* x, int64_t n, const Arrays& arrays, int thread, int which) const
    -> const Element* {
  if constexpr (!kConverts) {
    return x;
  } else {
    T* const part = arrays.parts + (3 * thread + which) * unit_elements();
    for (int64_t at = 0; at < n; at += kUnit) {
      flat::Cast(kDTypeOf<E>, x + at, kDTypeOf<T>, part + at, std::min(kUnit, n - at));
    }
    return part;
  }
}

template <class T, class E>
auto ChannelPasses<T, E>::Target(E* y, const Arrays& arrays, int thread) const -> Element* {
  if constexpr (!kConverts) {
    return y;
  } else {
    return arrays.parts + (3 * thread + 2) * unit_elements();
  }
}

template <class T, class E>
void ChannelPasses<T, E>::Write(const Element* from, int64_t n, E* y) const {
  for (int64_t at = 0; at < n && kConverts; at += kUnit) {
    flat::Cast(kDTypeOf<T>, from + at, kDTypeOf<E>, y + at, std::min(kUnit, n - at));
  }
}

template <class T, class E>
int64_t ChannelPasses<T, E>::scratch_bytes() const {
  const int64_t parts = kConverts ? CheckedMul(3 * threads_, unit_elements()) : 0;
  return view_.channels * static_cast<int64_t>(sizeof(double)) * 2 * (threads_ + 1) +
         (5 * view_.channels + parts) * static_cast<int64_t>(sizeof(T));
}

template <class T, class E>
typename ChannelPasses<T, E>::Arrays ChannelPasses<T, E>::In(void* scratch) const {
  const int64_t n = view_.channels;
  Arrays arrays;
  arrays.first = static_cast<double*>(scratch);
  arrays.second = arrays.first + n;
  arrays.mean = reinterpret_cast<T*>(arrays.first + 2 * n * (threads_ + 1));
  arrays.scale = arrays.mean + n;
  arrays.beta = arrays.scale + n;
  arrays.b = arrays.beta + n;
  arrays.c = arrays.b + n;
  arrays.parts = arrays.c + n;
  return arrays;
}

template <class T, class E>
template <class F>
void ChannelPasses<T, E>::ForTeam(const F& pass) const {
  const int64_t elements = view_.outer * view_.rows * view_.channels;
  ParallelFor(units_, 1, elements <= kSerialElements ? units_ : 0, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t run = unit / units_per_run_, row = unit % units_per_run_ * rows_per_unit_;
      pass((run * view_.rows + row) * lanes_, std::min(rows_per_unit_, view_.rows - row), run % groups_ * lanes_,
           thread);
    }
  });
}

template <class T, class E>
template <class F>
void ChannelPasses<T, E>::SumByTeam(const Arrays& arrays, const F& sum) const {
  const int64_t n = view_.channels;
  std::fill_n(arrays.first, 2 * n * (threads_ + 1), 0.0);
  ForTeam([&](int64_t offset, int64_t rows, int64_t channel, int thread) {
    double* first = arrays.first + 2 * n * (thread + 1) + channel;
    sum(offset, rows, channel, thread, first, first + n);
  });
  for (int thread = 0; thread < threads_; ++thread) {
    const double* part = arrays.first + 2 * n * (thread + 1);
    for (int64_t i = 0; i < 2 * n; ++i) arrays.first[i] += part[i];
  }
}

template <class T, class E>
void ChannelPasses<T, E>::Moments(const E* x, const Arrays& arrays) const {
  const auto& loops = BestLoops<T>().template ChannelsOf<Element>();
  const int64_t n = view_.channels;
  // The shift, kept in `mean`: what the first few elements of each channel are on average.
  T* shift = arrays.mean;
  std::fill_n(shift, n, T{0});
  std::fill_n(arrays.first, 2 * n, 0.0);
  const int64_t few = std::min(view_.rows, kFew);
  for (int64_t i = 0; i < groups_; ++i) {
    const Element* run = Read(x + i * view_.rows * lanes_, few * lanes_, arrays, 0, 0);
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

  SumByTeam(arrays, [&](int64_t offset, int64_t rows, int64_t channel, int thread, double* first, double* second) {
    const Element* in = Read(x + offset, rows * lanes_, arrays, thread, 0);
    if (view_.planes) {
      double sums[2] = {};
      loops.moments(in, rows, shift[channel], sums);
      *first += sums[0];
      *second += sums[1];
    } else {
      loops.moments_rows(in, rows, view_.lanes, view_.lanes, shift + channel, first, second);
    }
  });
  for (int64_t i = 0; i < n; ++i) {
    const double difference = arrays.first[i] / count();
    arrays.second[i] = std::max(arrays.second[i] - arrays.first[i] * difference, 0.0);
    arrays.first[i] = static_cast<double>(shift[i]) + difference;
  }
}

template <class T, class E>
void ChannelPasses<T, E>::GradSums(const E* dy, const E* x, const Arrays& arrays, bool relu) const {
  const auto& loops = BestLoops<T>().template ChannelsOf<Element>();
  SumByTeam(arrays, [&](int64_t offset, int64_t rows, int64_t channel, int thread, double* first, double* second) {
    const Element* in = Read(x + offset, rows * lanes_, arrays, thread, 0);
    const Element* dout = Read(dy + offset, rows * lanes_, arrays, thread, 1);
    if (view_.planes) {
      double sums[2] = {};
      loops.grad_sums(dout, in, rows, arrays.At(channel), relu, sums);
      *first += sums[0];
      *second += sums[1];
    } else {
      loops.grad_sums_rows(dout, in, rows, view_.lanes, view_.lanes, arrays.From(channel), relu, first, second);
    }
  });
}

template <class T, class E>
void ChannelPasses<T, E>::Normalize(const E* x, E* y, const Arrays& arrays, bool relu) const {
  const auto& loops = BestLoops<T>().template ChannelsOf<Element>();
  ForTeam([&](int64_t offset, int64_t rows, int64_t channel, int thread) {
    const Element* in = Read(x + offset, rows * lanes_, arrays, thread, 0);
    Element* out = Target(y + offset, arrays, thread);
    if (view_.planes) {
      loops.normalize(in, out, rows, arrays.At(channel), relu);
    } else {
      loops.normalize_rows(in, out, rows, view_.lanes, arrays.From(channel), relu);
    }
    Write(out, rows * lanes_, y + offset);
  });
}

template <class T, class E>
void ChannelPasses<T, E>::GradInput(const E* dy, const E* x, E* dx, const Arrays& arrays, bool relu) const {
  const auto& loops = BestLoops<T>().template ChannelsOf<Element>();
  ForTeam([&](int64_t offset, int64_t rows, int64_t channel, int thread) {
    const Element* in = Read(x + offset, rows * lanes_, arrays, thread, 0);
    const Element* dout = Read(dy + offset, rows * lanes_, arrays, thread, 1);
    Element* din = Target(dx + offset, arrays, thread);
    if (view_.planes) {
      loops.grad_input(dout, in, din, rows, arrays.At(channel), relu);
    } else {
      loops.grad_input_rows(dout, in, din, rows, view_.lanes, arrays.From(channel), relu);
    }
    Write(din, rows * lanes_, dx + offset);
  });
}

template class ChannelPasses<float>;
template class ChannelPasses<double>;
template class ChannelPasses<float, bfloat16>;
template class ChannelPasses<float, float16>;

}  // namespace bindery::cpu
