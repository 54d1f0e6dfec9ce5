#include "symbol/ops/ctc.h"

#include "base/error.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

void InferCTC(const CTCLossAttrs& attrs, Value data, Value label, std::initializer_list<Value> of_samples) {
  rule::ExpectFloat(data);
  if (!data.shape()) return;
  rule::ExpectRank(*data.shape(), 3, "(T, N, K)");
  const int64_t classes = (*data.shape())[2];
  if (classes != kUnknownDim && (attrs.blank >= classes || attrs.blank < -classes)) {
    Throw<ShapeError>("blank {} is none of {} classes", attrs.blank, classes);
  }
  label.Set({(*data.shape())[1], kUnknownDim});
  if (label.shape()) data.Set(data.shape()->With(1, (*label.shape())[0]));
  for (const Value& value : of_samples) {
    value.Set({(*data.shape())[1]});
    if (value.shape()) data.Set(data.shape()->With(1, (*value.shape())[0]));
  }
}

}  // namespace

const OpDef& CTCLossOp() {
  static const OpDef op = {
      .name = "CTCLoss",
      .doc = "-log of the sum over all paths that give the labels of the product of softmax(data).",
      .attrs_type = &AttrsOf<CTCLossAttrs>(),
      .inputs = {"data", "label", Optional("data_lengths", If(&CTCLossAttrs::use_data_lengths)),
                 Optional("label_lengths", If(&CTCLossAttrs::use_label_lengths))},
      .infer =
          [](InferContext& c) {
            rule::SameDType({c.in(0), c.out(0)});
            InferCTC(c.attrs<CTCLossAttrs>(), c.in(0), c.in(1), {c.in(2), c.in(3), c.out(0)});
            c.in(0).Carry(c.out(0), [](int axis) { return axis == 1 ? 0 : -1; });
          },
      .asks = {{.input = "data_lengths", .range = [](auto&, auto in) { return WholeNumbers::UpTo(in[0][0]); }},
               {.input = "label_lengths", .range = [](auto&, auto in) { return WholeNumbers::UpTo(in[1][1]); }}},
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // See CTCLossGrad.
        std::vector<Symbol> inputs = {g.output_grad(0)}, gradients(g.num_inputs());
        for (int i = 0; i < g.num_inputs(); ++i) inputs.push_back(g.input(i));
        if (g.wants(0)) gradients[0] = Apply(CTCLossGradOp(), g.attrs<CTCLossAttrs>(), std::move(inputs));
        return gradients;
      },
  };
  return op;
}

const OpDef& CTCLossGradOp() {
  static const OpDef op = {
      .name = "CTCLossGrad",
      .doc = "dx_tk = dy (softmax(data_t)_k - the part of the paths that are at k at step t); 0 after the last step.",
      .attrs_type = &AttrsOf<CTCLossAttrs>(),
      .inputs = {"output_grad", "data", "label", Optional("data_lengths", If(&CTCLossAttrs::use_data_lengths)),
                 Optional("label_lengths", If(&CTCLossAttrs::use_label_lengths))},
      .infer =
          [](InferContext& c) {
            rule::SameDType({c.in(0), c.in(1)});
            rule::Same({c.in(1), c.out(0)});
            InferCTC(c.attrs<CTCLossAttrs>(), c.in(1), c.in(2), {c.in(3), c.in(4), c.in(0)});
            rule::Same({c.in(1), c.out(0)});
            c.in(1).Carry(c.out(0), [](int axis) { return axis == 1 ? 1 : -1; });
          },
      .not_differentiable = "the second derivative of CTC is not provided",
  };
  return op;
}

}  // namespace bindery
