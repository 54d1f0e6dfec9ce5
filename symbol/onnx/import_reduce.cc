// Reductions.
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

using Reduce = std::function<Symbol(const Symbol& x, const ReduceAttrs& attrs, const std::string& name)>;

// Axes: an attribute, and an input since version 13 of sums and 18 of the others.
ImportFn Reduction(const Reduce& f) {
  return [f](Importer& im) {
    const bool keeps_if_empty = im.Flag("noop_with_empty_axes");
    const ReduceAttrs attrs{.axes = im.AttributeOrInput("axes", 1), .keepdims = im.Flag("keepdims", true)};
    if (attrs.axes.empty() && keeps_if_empty) return im.Out(Identity(im.In(0), im.name()));
    im.Out(f(im.In(0), attrs, im.name()));
  };
}

Symbol Least(const Symbol& x, const ReduceAttrs& attrs, const std::string& name) {
  return Negative(Max(Negative(x), attrs), name);
}

Symbol SumOfAbs(const Symbol& x, const ReduceAttrs& attrs, const std::string& name) { return Sum(Abs(x), attrs, name); }

Symbol SumOfSquares(const Symbol& x, const ReduceAttrs& attrs, const std::string& name) {
  return Sum(Square(x), attrs, name);
}

Symbol Norm(const Symbol& x, const ReduceAttrs& attrs, const std::string& name) {
  return Sqrt(Sum(Square(x), attrs), name);
}

Symbol LogOfSum(const Symbol& x, const ReduceAttrs& attrs, const std::string& name) { return Log(Sum(x, attrs), name); }

// log sum exp(x - m) + m, with m the largest; what m does to it cancels.
Symbol LogOfSumOfExp(const Symbol& x, const ReduceAttrs& attrs, const std::string& name) {
  const Symbol most = BlockGrad(Max(x, {.axes = attrs.axes, .keepdims = true}));
  return Add(Log(Sum(Exp(x - most), attrs)), Max(most, attrs), name);
}

}  // namespace

std::span<const ImportRow> ReduceImports() {
  static const std::vector<ImportRow> rows = {
      {"ReduceL1", 1, Reduction(SumOfAbs)},
      {"ReduceL2", 1, Reduction(Norm)},
      {"ReduceLogSum", 1, Reduction(LogOfSum)},
      {"ReduceLogSumExp", 1, Reduction(LogOfSumOfExp)},
      {"ReduceMax", 1, Reduction(Max)},
      {"ReduceMean", 1, Reduction(Mean)},
      {"ReduceMin", 1, Reduction(Least)},
      {"ReduceSum", 1, Reduction(Sum)},
      {"ReduceSumSquare", 1, Reduction(SumOfSquares)},
  };
  return rows;
}

}  // namespace bindery::onnx
