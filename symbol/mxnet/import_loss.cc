// Heads of training graphs. Their gradients are those of MXNet's operators, which ours take after.
#include <vector>

#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

void ImportSoftmaxOutput(Importer& im) {
  const SoftmaxOutputAttrs attrs{.grad_scale = im.Float("grad_scale", 1),
                                 .normalization = im.Enum("normalization", Normalization::kNull),
                                 .use_ignore = im.Flag("use_ignore"),
                                 .ignore_label = im.Float("ignore_label", -1),
                                 .smooth_alpha = im.Float("smooth_alpha", 0),
                                 .multi_output = im.Flag("multi_output"),
                                 .preserve_shape = im.Flag("preserve_shape"),
                                 .out_grad = im.Flag("out_grad")};
  im.Out(SoftmaxOutput(im.In(0), im.In(1, "label"), attrs, im.name()));
}

ImportFn Regression(const OpFunction<LinearRegressionOutputAttrs, 2>& f) {
  return [f](Importer& im) {
    im.Out(f(im.In(0), im.In(1, "label"), {.grad_scale = im.Float("grad_scale", 1)}, im.name()));
  };
}

void ImportSVMOutput(Importer& im) {
  im.Out(SVMOutput(im.In(0), im.In(1, "label"),
                   {.margin = im.Float("margin", 1),
                    .regularization = im.Float("regularization_coefficient", 1),
                    .use_linear = im.Flag("use_linear")},
                   im.name()));
}

void ImportMakeLoss(Importer& im) {
  im.Out(MakeLoss(im.In(0),
                  {.grad_scale = im.Float("grad_scale", 1),
                   .normalization = im.Enum("normalization", Normalization::kNull),
                   .valid_thresh = im.Float("valid_thresh", 0)},
                  im.name()));
}

void ImportBlockGrad(Importer& im) { im.Out(BlockGrad(im.In(0), im.name())); }

// The sum over the samples.
void ImportSoftmaxCrossEntropy(Importer& im) {
  im.Out(AsVector(SoftmaxCrossEntropy(im.In(0), im.In(1), {}, LossReduction::kSum), im.name()));
}

void ImportCTCLoss(Importer& im) {
  im.Expect("blank_label", {"first", "last"});
  const bool last = im.String("blank_label", "first") == "last";
  const CTCLossAttrs attrs{.blank = last ? -1 : 0,
                           .use_data_lengths = im.Flag("use_data_lengths"),
                           .use_label_lengths = im.Flag("use_label_lengths")};
  im.Out(Apply(CTCLossOp(), attrs, im.AllInputs(), im.name()));
}

}  // namespace

std::span<const ImportRow> LossImports() {
  static const std::vector<ImportRow> rows = {
      {"BlockGrad", ImportBlockGrad},
      {"CTCLoss", ImportCTCLoss},
      {"LinearRegressionOutput", Regression(LinearRegressionOutput)},
      {"LogisticRegressionOutput", Regression(LogisticRegressionOutput)},
      {"MAERegressionOutput", Regression(MAERegressionOutput)},
      {"MakeLoss", ImportMakeLoss},
      {"SVMOutput", ImportSVMOutput},
      {"Softmax", ImportSoftmaxOutput},  // its name before 0.7
      {"SoftmaxOutput", ImportSoftmaxOutput},
      {"_contrib_CTCLoss", ImportCTCLoss},
      {"_contrib_ctc_loss", ImportCTCLoss},
      {"ctc_loss", ImportCTCLoss},
      {"make_loss", ImportMakeLoss},
      {"softmax_cross_entropy", ImportSoftmaxCrossEntropy},
      {"stop_gradient", ImportBlockGrad},
  };
  return rows;
}

}  // namespace bindery::mxnet
