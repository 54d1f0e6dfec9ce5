#include "executor/kernels/cpu/recurrent_panels.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace recurrent {

template <class Real>
int64_t WeightPanels<Real>::width() {
  return 2 * BestLoops<Real>().lanes;
}

template <class Real>
int64_t WeightPanels<Real>::blocks() const {
  return CeilDiv(hidden, kTile);
}

template <class Real>
int64_t WeightPanels<Real>::elements() const {
  return CheckedMul(CheckedMul(gates, blocks()), of_block());
}

template <class Real>
Format WeightPanels<Real>::format() const {
  return Format::Opaque(CheckedMul(elements(), sizeof(Real)), fmt::format("recurrent{}", width()).c_str());
}

template <class Real>
void WeightPanels<Real>::Pack(const Real* weight, Real* panels) const {
  const int64_t count = gates * blocks();
  ParallelFor(count, 1, elements() <= kSerialElements ? count : 0, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t gate = i / blocks(), first = i % blocks() * kTile, units = std::min(kTile, hidden - first);
      const Real* const from = weight + (gate * hidden + first) * hidden;
      Real* const to = panels + i * of_block();
      if (units < kTile) std::fill_n(to, of_block(), Real{0});
      for (int64_t unit = 0; unit < units; unit += width()) {
        PackColumns(from + unit * hidden, std::min(width(), units - unit), to + unit * hidden);
      }
    }
  });
}

// The weights of some units, a panel's columns.
template <class Real>
void WeightPanels<Real>::PackColumns(const Real* from, int64_t units, Real* to) const {
  const int64_t columns = width();
  for (int64_t at = 0; at < hidden; at += kTile) {  // what of a panel stays in the nearest cache
    for (int64_t unit = 0; unit < units; ++unit) {
      const Real* const values = from + unit * hidden;
      for (int64_t k = at; k < std::min(at + kTile, hidden); ++k) to[k * columns + unit] = values[k];
    }
  }
}

template struct WeightPanels<float>;
template struct WeightPanels<double>;

}  // namespace recurrent

namespace {

template <class Real>
MaybeKernel Packs(const Shape& weight, const Format& from, const Format& to, int threads) {
  const recurrent::WeightPanels<Real> panels{weight[0] / weight[1], weight[1]};
  if (to != panels.format()) return std::nullopt;
  Kernel kernel{.implementation = "panels", .input_formats = {from}, .output_formats = {to}, .threads = threads};
  return WithLoop(std::move(kernel),
                  [panels](const Arguments& args) { panels.Pack(args.in<Real>(0), args.out<Real>(0)); });
}

}  // namespace

MaybeKernel RecurrentWeights(DType dtype, const Shape& weight, const Format& from, const Format& to, int threads) {
  if (from.kind != Format::Kind::kPlain || weight.rank() != 2 || weight[1] == 0) return std::nullopt;
  if (dtype == DType::kFloat32) return Packs<float>(weight, from, to, threads);
  if (dtype == DType::kFloat64) return Packs<double>(weight, from, to, threads);
  return std::nullopt;
}

}  // namespace bindery::cpu
