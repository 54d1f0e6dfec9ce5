// The passes over memory that batch normalisation is made of, for (N, C, ...) in any layout that ViewChannels knows.
//
// Sums are gathered per thread over a fixed share of the data and merged in the order of threads: they depend on the
// shape, the layout and the number of threads only. Variances come from sums of (x - shift) and its square, the shift
// being the mean of a few elements of the channel, so that nothing cancels; one pass over memory instead of two.
//
// Data of 16 bits are computed in float: bfloat16 by loops that read and write it; of float16 a thread converts so many
// elements as stay in cache, and back.
#pragma once

#include <initializer_list>
#include <iterator>
#include <type_traits>

#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {

// Of elements E, in T.
template <class T, class E = T>
class ChannelPasses {
 public:
  // Arrays of one double or T per channel, in scratch memory.
  struct Arrays {
    double *first, *second;          // merged sums; each thread's partial sums follow
    T *mean, *scale, *beta, *b, *c;  // see typename LoopsOf<T>::Channel
    T* parts;                        // elements that are converted, as T
    typename LoopsOf<T>::Channel At(int64_t i) const { return {mean[i], scale[i], beta[i], b[i], c[i]}; }
    typename LoopsOf<T>::Channels From(int64_t i) const { return {mean + i, scale + i, beta + i, b + i, c + i}; }
  };

  ChannelPasses(const ChannelView& view, int threads);
  int64_t channels() const { return view_.channels; }
  double count() const { return static_cast<double>(view_.outer * view_.rows); }  // elements per channel
  int64_t scratch_bytes() const;
  Arrays In(void* scratch) const;

  // first = mean, second = sum of (x - mean)^2
  void Moments(const E* x, const Arrays& arrays) const;
  // first = sum g, second = sum g (x - mean); uses mean, and with relu scale and beta
  void GradSums(const E* dy, const E* x, const Arrays& arrays, bool relu) const;
  // y = (x - mean) scale + beta
  void Normalize(const E* x, E* y, const Arrays& arrays, bool relu) const;
  // dx = scale g + b (x - mean) + c; `relu` as above
  void GradInput(const E* dy, const E* x, E* dx, const Arrays& arrays, bool relu) const;

 private:
  static constexpr bool kConverts = std::is_same_v<E, float16>;
  using Element = std::conditional_t<kConverts, T, E>;
  int64_t unit_elements() const { return rows_per_unit_ * lanes_; }
  // Elements of a unit as loops read them, in the `which`th of a thread's three parts of scratch memory or where they
  // are; where to put those of another unit; and from there to where they belong.
  const Element* Read(const E* x, int64_t n, const Arrays& arrays, int thread, int which) const;
  Element* Target(E* y, const Arrays& arrays, int thread) const;
  void Write(const Element* from, int64_t n, E* y) const;
  // pass(offset, rows, first channel, thread) for all units, by the team.
  template <class F>
  void ForTeam(const F& pass) const;
  // sum(unit..., first, second) into each thread's own sums, then all into the first.
  template <class F>
  void SumByTeam(const Arrays& arrays, const F& sum) const;

  ChannelView view_;
  int threads_;
  int64_t lanes_, groups_;  // planes are groups of one lane
  int64_t rows_per_unit_, units_per_run_, units_;
};

extern template class ChannelPasses<float>;
extern template class ChannelPasses<double>;
extern template class ChannelPasses<float, bfloat16>;
extern template class ChannelPasses<float, float16>;

// A kernel that walks the channels along `axis` of some inputs, which have the format in which the last of them comes
// if it can be walked there; output 0 has it, too, if `writes` it.
template <class T, class E = T>
struct OverChannels {
  Kernel kernel;
  ChannelPasses<T, E> passes;
};
template <class T, class E = T>
OverChannels<T, E> MakeOverChannels(const KernelSpec& spec, int axis, std::initializer_list<int> inputs, bool writes) {
  ChannelView view;
  const int last = *std::prev(inputs.end());
  const Shape& shape = spec.inputs[last].shape;
  Format format = spec.input_formats[last];
  if (!ViewChannels(format, shape, shape.Axis(axis), &view)) {
    format = Format::Plain();
    ViewChannels(format, shape, shape.Axis(axis), &view);
  }
  OverChannels<T, E> result{PlainKernel(spec, "loop"), {view, spec.threads}};
  for (int i : inputs) result.kernel.input_formats[i] = format;
  if (writes) {
    result.kernel.output_formats[0] = format;
    result.kernel.inplace = {{0, 0}};
  }
  result.kernel.scratch_bytes = result.passes.scratch_bytes();
  return result;
}

}  // namespace bindery::cpu
