// Losses, as functions of their inputs. To train by one, end the graph in MakeLoss.
#include <string>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

LossReduction ReductionOf(const Importer& im) {
  const std::string by = im.String("reduction", "mean");
  if (by == "none") return LossReduction::kNone;
  if (by == "sum") return LossReduction::kSum;
  if (by == "mean") return LossReduction::kMean;
  Throw<ModelError>("attribute \"reduction\": expected none, sum or mean, got \"{}\"", by);
}

CrossEntropyAttrs AttrsOf(const Importer& im) {
  return {.axis = 1,
          .use_ignore = im.HasAttribute("ignore_index"),
          .ignore_label = static_cast<double>(im.Int("ignore_index", -1)),
          .use_weight = im.Has(2)};
}

// In ONNX a loss is of its data's type; ours of 16 bits is of float32.
template <class Loss>
void OutLoss(Importer& im, const Loss& loss) {
  const DType dtype = im.DTypeOf(im.In(0));
  const Symbol weight = im.Has(2) ? im.In(2) : Symbol();
  const auto of = [&](const std::string& name) {
    return loss(im.In(0), im.In(1), AttrsOf(im), ReductionOf(im), weight, name);
  };
  im.Out(SizeOf(dtype) == 2 ? Cast(of(""), {.dtype = dtype}, im.name()) : of(im.name()));
}

void ImportNegativeLogLikelihood(Importer& im) { OutLoss(im, NegativeLogLikelihood); }

void ImportSoftmaxCrossEntropy(Importer& im) {
  OutLoss(im, SoftmaxCrossEntropy);
  if (im.Wanted(1)) im.Out(1, LogSoftmax(im.In(0), {.axis = 1}));
}

}  // namespace

std::span<const ImportRow> LossImports() {
  static const std::vector<ImportRow> rows = {
      {"NegativeLogLikelihoodLoss", 12, ImportNegativeLogLikelihood},
      {"SoftmaxCrossEntropyLoss", 12, ImportSoftmaxCrossEntropy},
  };
  return rows;
}

}  // namespace bindery::onnx
