// Reductions.
#include <functional>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

using Reduce = std::function<Symbol(const Symbol& x, const ReduceAttrs& attrs, const std::string& name)>;

// Axes: an attribute, and an input since version 13 of sums and 18 of the others.
ImportFn Reduction(const Reduce& f) {
  return [f](Importer& im) {
    const ReduceAttrs attrs{.axes = im.AttributeOrInput("axes", 1),
                            .keepdims = im.Flag("keepdims", true),
                            .noop_with_empty_axes = im.Flag("noop_with_empty_axes")};
    im.Out(f(im.In(0), attrs, im.name()));
  };
}

}  // namespace

std::span<const ImportRow> ReduceImports() {
  static const std::vector<ImportRow> rows = {
      {"ReduceL1", 1, Reduction(L1Norm)},     {"ReduceL2", 1, Reduction(L2Norm)},
      {"ReduceLogSum", 1, Reduction(LogSum)}, {"ReduceLogSumExp", 1, Reduction(LogSumExp)},
      {"ReduceMax", 1, Reduction(Max)},       {"ReduceMean", 1, Reduction(Mean)},
      {"ReduceMin", 1, Reduction(Min)},       {"ReduceProd", 1, Reduction(Prod)},
      {"ReduceSum", 1, Reduction(Sum)},       {"ReduceSumSquare", 1, Reduction(SumSquare)},
  };
  return rows;
}

}  // namespace bindery::onnx
