// The weights of a recurrent layer's products with its states, as its forward kernel reads them: transposed, gate by gate,
// and of each gate in blocks of 64 hidden units, which are panels of two vectors of columns, one after another. Weights
// that predictions keep are laid out once: that is a format of theirs.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu::recurrent {

inline constexpr int64_t kTile = 64;

template <class Real>
struct WeightPanels {
  int64_t gates, hidden;

  static int64_t width();  // of a panel, in columns: two vectors, which are multiplied at once
  int64_t blocks() const;
  int64_t of_block() const { return hidden * kTile; }  // elements
  int64_t elements() const;
  Format format() const;
  void Pack(const Real* weight, Real* panels) const;  // (gates * hidden, hidden), by the thread's team

 private:
  void PackColumns(const Real* from, int64_t units, Real* to) const;
};

}  // namespace bindery::cpu::recurrent

namespace bindery::cpu {

// What turns weights into that format. nullopt for other formats.
MaybeKernel RecurrentWeights(DType dtype, const Shape& weight, const Format& from, const Format& to, int threads);

}  // namespace bindery::cpu
