// The passes over memory that batch normalisation is made of, for (N, C, ...) in any layout that ViewChannels knows.
//
// Sums are gathered per thread over a fixed share of the data and merged in the order of threads: they depend on the
// shape, the layout and the number of threads only. Variances come from sums of (x - shift) and its square, the shift
// being the mean of a few elements of the channel, so that nothing cancels; one pass over memory instead of two.
#pragma once

#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {

class ChannelPasses {
 public:
  // Arrays of one double or float per channel, in scratch memory.
  struct Arrays {
    double *first, *second;              // merged sums; each thread's partial sums follow
    float *mean, *scale, *beta, *b, *c;  // see Loops::Channel
    Loops::Channels All() const { return {mean, scale, beta, b, c}; }
    Loops::Channel At(int64_t i) const { return {mean[i], scale[i], beta[i], b[i], c[i]}; }
  };

  ChannelPasses(const ChannelView& view, int threads);
  int64_t channels() const { return view_.channels; }
  double count() const { return static_cast<double>(view_.outer * view_.rows); }  // elements per channel
  int64_t scratch_bytes() const;
  Arrays In(void* scratch) const;

  // first = mean, second = sum of (x - mean)^2
  void Moments(const float* x, const Arrays& arrays) const;
  // first = sum g, second = sum g (x - mean); uses mean, and with relu scale and beta
  void GradSums(const float* dy, const float* x, const Arrays& arrays, bool relu) const;
  // y = (x - mean) scale + beta
  void Normalize(const float* x, float* y, const Arrays& arrays, bool relu) const;
  // dx = scale g + b (x - mean) + c; `relu` as above
  void GradInput(const float* dy, const float* x, float* dx, const Arrays& arrays, bool relu) const;

 private:
  // f(offset, rows, first channel) for the units of [begin, end)
  template <class F>
  void ForUnits(int64_t begin, int64_t end, const F& f) const;
  // Runs pass(begin, end, thread) over all units by the team.
  template <class F>
  void ForTeam(const F& pass) const;
  // sum(unit..., first, second) into each thread's own sums, then all into the first.
  template <class F>
  void SumByTeam(const Arrays& arrays, const F& sum) const;

  ChannelView view_;
  int threads_;
  int64_t rows_per_unit_, units_per_run_, units_;
};

}  // namespace bindery::cpu
