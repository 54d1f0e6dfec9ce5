// Heads of training graphs: their gradients are those the field expects, not derivatives of their outputs, and do not
// depend on a head gradient.
//
// Normalization: `null` divides by nothing (the sum over samples; the updater divides once by the samples of the whole
// step); `batch` divides by the number of samples of the whole step, on all devices; `valid` by the number of valid
// labels of all devices (at least 1).
#pragma once

#include <array>

#include "symbol/op_def.h"

namespace bindery {

enum class Normalization { kNull, kBatch, kValid };
inline std::span<const EnumName> EnumNames(Normalization*) {
  static constexpr std::array<EnumName, 3> names{{{0, "null"}, {1, "batch"}, {2, "valid"}}};
  return names;
}

struct SoftmaxOutputAttrs {
  double grad_scale = 1;
  Normalization normalization = Normalization::kNull;
  bool use_ignore = false;
  double ignore_label = -1;   // with use_ignore: samples with this label have no gradient and are not valid
  double smooth_alpha = 0;    // label smoothing: the target is 1 - a at the label and a / (K - 1) elsewhere
  bool multi_output = false;  // softmax over axis 1 of (N, K, ...), label (N, ...); null and batch divide by the number
                              // of positions too
  bool preserve_shape = false;  // softmax over the last axis of (..., K), label (...)
  bool out_grad = false;        // multiply by a head gradient, which must then be given
  // A number for each class, which the gradient of a label of it is multiplied by; none: 1 each. `valid` divides by the
  // sum of these of valid labels, the others by what they divide by without.
  std::vector<double> class_weights = {};
  static FieldList Fields() {
    using A = SoftmaxOutputAttrs;
    return {{"grad_scale", &A::grad_scale, "factor of the gradient"},
            {"normalization", &A::normalization, "divisor: null, batch, valid"},
            {"use_ignore", &A::use_ignore, "honour ignore_label"},
            {"ignore_label", &A::ignore_label, "label without gradient"},
            {"smooth_alpha", &A::smooth_alpha, "label smoothing"},
            {"multi_output", &A::multi_output, "softmax over axis 1 at each position"},
            {"preserve_shape", &A::preserve_shape, "softmax over the last axis"},
            {"out_grad", &A::out_grad, "multiply by the head gradient"},
            {"class_weights", &A::class_weights, "factor of the gradient for labels of each class; default 1"}};
  }
};
// data (N, K) [other axes join K unless multi_output or preserve_shape] -> probabilities of the same shape. label (N)
// of class numbers, any dtype, or of data's shape: probabilities (then none of use_ignore, `valid` and class_weights
// may be asked for). DataError, when the gradient is run, for a label that is no class. The label's variable is
// "<name>_label" if not given.
const OpDef& SoftmaxOutputOp();
inline constexpr OpFunction<SoftmaxOutputAttrs, 2> SoftmaxOutput{SoftmaxOutputOp};
// (output, label [, valid count (1) if normalization is valid] [, head gradient if out_grad]) -> data gradient
//   (p - target) * grad_scale / divisor, zero for ignored samples; class weights come behind
const OpDef& SoftmaxOutputGradOp();

// x -> sum of x over all devices, in device order
const OpDef& SumOverDevicesOp();
inline constexpr OpFunction<NoAttrs> SumOverDevices{SumOverDevicesOp};
// How many elements of all devices are true: (1), float32.
Symbol CountOverDevices(const Symbol& truth);

struct LinearRegressionOutputAttrs {
  double grad_scale = 1;
  static FieldList Fields() {
    return {{"grad_scale", &LinearRegressionOutputAttrs::grad_scale, "factor of the gradient"}};
  }
};
// output = data; label of the same number of elements. Gradient (data - label) * grad_scale / (elements per sample).
const OpDef& LinearRegressionOutputOp();
inline constexpr OpFunction<LinearRegressionOutputAttrs, 2> LinearRegressionOutput{LinearRegressionOutputOp};
const OpDef& LinearRegressionOutputGradOp();  // (output, label) -> data gradient
// The same, but the output is 1 / (1 + e^-data), and the gradient that of its cross entropy with the label by data:
// (output - label) * grad_scale / (elements per sample).
const OpDef& LogisticRegressionOutputOp();
inline constexpr OpFunction<LinearRegressionOutputAttrs, 2> LogisticRegressionOutput{LogisticRegressionOutputOp};
// Gradient sign(data - label) * grad_scale / (elements per sample).
const OpDef& MAERegressionOutputOp();
inline constexpr OpFunction<LinearRegressionOutputAttrs, 2> MAERegressionOutput{MAERegressionOutputOp};
const OpDef& MAERegressionOutputGradOp();  // (output, label) -> data gradient

struct SVMOutputAttrs {
  double margin = 1, regularization = 1;
  bool use_linear = false;
  static FieldList Fields() {
    using A = SVMOutputAttrs;
    return {{"margin", &A::margin, "distance at which a class loses nothing"},
            {"regularization", &A::regularization, "factor of the gradient"},
            {"use_linear", &A::use_linear, "the hinge itself (L1), not its square (L2)"}};
  }
};
// output = data (N, K) [other axes join K]; label (N) of class numbers, any dtype. A hinge h of each class, one against
// the rest: max(0, margin - x) of the label, max(0, margin + x) of the others; the loss is the sum of h^2, or of h with
// use_linear, times regularization. A whole label that is no class has all of them against it; DataError, when the
// gradient is run, for one that is not whole.
const OpDef& SVMOutputOp();
inline constexpr OpFunction<SVMOutputAttrs, 2> SVMOutput{SVMOutputOp};
const OpDef& SVMOutputGradOp();  // (output, label) -> data gradient

struct MakeLossAttrs {
  double grad_scale = 1;
  Normalization normalization = Normalization::kNull;
  double valid_thresh = 0;  // with `valid`: elements above it count
  static FieldList Fields() {
    using A = MakeLossAttrs;
    return {{"grad_scale", &A::grad_scale, "the gradient"},
            {"normalization", &A::normalization, "divisor: null, batch, valid"},
            {"valid_thresh", &A::valid_thresh, "with valid: elements above it count"}};
  }
};
// output = data; gradient grad_scale / divisor everywhere.
const OpDef& MakeLossOp();
inline constexpr OpFunction<MakeLossAttrs> MakeLoss{MakeLossOp};
struct MakeLossGradAttrs {
  double grad_scale = 1;
  Normalization normalization = Normalization::kNull;
  DType dtype = DType::kFloat32;
  static FieldList Fields() {
    using A = MakeLossGradAttrs;
    return {{"grad_scale", &A::grad_scale, "the gradient"},
            {"normalization", &A::normalization, "divisor: null, batch, valid"},
            {"dtype", &A::dtype, "element type of the gradient"}};
  }
};
const OpDef& MakeLossGradOp();  // ([valid count]) -> (): the gradient of every element of data

// output = data; the gradient is times the loss scale of the step (LossScaleOp).
const OpDef& ScaleLossOp();
inline constexpr OpFunction<NoAttrs> ScaleLoss{ScaleLossOp};
const OpDef& LossScaleOp();  // () -> (), of the type of what it is combined with: the loss scale of the step
// With ScaleLoss in front of every loss head, so that whatever lies behind them gets gradients times the step's loss
// scale, as small numbers in narrow types need it. Who updates divides by it (Updater).
Symbol ScaleLosses(const Symbol& symbol);

// output = data; no gradient passes.
const OpDef& BlockGradOp();
inline constexpr OpFunction<NoAttrs> BlockGrad{BlockGradOp};

}  // namespace bindery
