// Losses of class numbers that have true gradients. (SoftmaxOutput, of loss.h, is the head whose output are the
// probabilities.) To train by one, end the graph in MakeLoss, with the divisor that is wanted.
#pragma once

#include <array>
#include <span>

#include "symbol/op_def.h"

namespace bindery {

struct CrossEntropyAttrs {
  int64_t axis = -1;        // of the classes
  bool use_ignore = false;  // positions with this label lose nothing and weigh nothing
  double ignore_label = -1;
  bool use_weight = false;  // is there a weight for each class?
  double label_smoothing = 0;
  bool log_input = false;  // data are logarithms of probabilities already
  static FieldList Fields() {
    using A = CrossEntropyAttrs;
    return {{"axis", &A::axis, "axis of the classes"},
            {"use_ignore", &A::use_ignore, "honour ignore_label"},
            {"ignore_label", &A::ignore_label, "label without loss"},
            {"use_weight", &A::use_weight, "take a weight of each class"},
            {"label_smoothing", &A::label_smoothing, "part of the target that all classes share"},
            {"log_input", &A::log_input, "data are logarithms of probabilities"}};
  }
};

// data, with K classes along the axis; label of any type, data's shape without the axis; class_weight (K) -> the loss
// of each label, and its weight w[label], 0 where it is ignored, both of float32 for data of 16 bits. With lp = data -
// log sum e^data (or data, if log_input) and a = label_smoothing
//   loss = (1 - a) w[label] -lp[label] + a / K sum_k w_k -lp_k
// as in PyTorch's cross_entropy. DataError, when run, for a label that is no class. The weights have no gradient.
const OpDef& CrossEntropyOp();
// (output gradient, data, label [, class_weight] [, maximum, log_sum unless log_input]) -> data gradient
const OpDef& CrossEntropyGradOp();

// Each loss; their sum; or their sum over the sum of their weights, on all devices together: each gives its part, and
// it is annotated to be merged by sum. A mean says, too, that it is one (is_mean): the update of what is trained by it,
// through MakeLoss, does not divide by the samples again. Each micro-batch has a mean of its own.
enum class LossReduction { kNone, kSum, kMean };
// An empty class_weight stands for none.
Symbol SoftmaxCrossEntropy(const Symbol& data, const Symbol& label, CrossEntropyAttrs attrs = {},
                           LossReduction reduction = LossReduction::kNone, const Symbol& class_weight = {},
                           const std::string& name = {});
// The same of logarithms of probabilities
Symbol NegativeLogLikelihood(const Symbol& data, const Symbol& label, CrossEntropyAttrs attrs = {},
                             LossReduction reduction = LossReduction::kNone, const Symbol& class_weight = {},
                             const std::string& name = {});

}  // namespace bindery
