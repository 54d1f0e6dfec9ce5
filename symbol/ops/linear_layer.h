// What convolution and the fully connected layer have in common: y = f(L(x, w) + b), with L linear in the data and in
// the weight, so that its gradients are made of the same three operators again. A layer is described by
//
//   using Attrs = ...;                     with no_bias and activation
//   using GradDataAttrs = ...;             the same, perhaps with what x's shape needs
//   const char* kName = ...;               the operators are <name>, <name>GradData and <name>GradWeight
//   kForward, kGradWeight                  two of their functions
//   int64_t Outputs(attrs);                the bias' extent
//   void Check(attrs);                     of both kinds; throws ModelError
//   void Infer(attrs, x, w, y);            shapes and the batch, in every direction
//   void SetData(attrs, x, y);             what the attributes of GradData say of x's shape
//   void SetOutputs(attrs, g);             completes those of GradData, of which g.shape(0) is y's
//   Symbol GradData(dy, w, attrs, shape);  shape() tells that of x; asked for only where it does not follow
//   Symbol Spread(b, attrs, shape);        a bias in the shape of y
//
// Private to symbol/ops.
#pragma once

#include <string>
#include <vector>

#include "symbol/ops/activation.h"
#include "symbol/ops/operations.h"
#include "symbol/ops/rules.h"

namespace bindery::rule {

template <class Layer>
class LinearLayer {
  using Attrs = typename Layer::Attrs;
  using GradDataAttrs = typename Layer::GradDataAttrs;

 public:
  // The three definitions.
  static OpDef Forward(std::string doc) {
    return {.name = Layer::kName,
            .doc = std::move(doc),
            .attrs_type = &AttrsOf<Attrs>(),
            .inputs = {"data", "weight", Optional("bias", Unless(&Attrs::no_bias))},
            .infer =
                [](InferContext& c) {
                  SameDTypes(c);
                  c.in(2).Set({Layer::Outputs(c.attrs<Attrs>())});
                  Layer::Infer(c.attrs<Attrs>(), c.in(0), c.in(1), c.out(0));
                },
            .check = Check<Attrs>,
            .gradient = Gradient,
            .operations = [](auto in, auto out) { return OperationsOfSums(out[0], in[1]); }};
  }
  static OpDef GradData(std::string doc) {
    return {.name = std::string(Layer::kName) + "GradData",
            .doc = std::move(doc),
            .attrs_type = &AttrsOf<GradDataAttrs>(),
            .inputs = {"output_grad", "weight"},
            .infer =
                [](InferContext& c) {
                  SameDTypes(c);
                  Layer::SetData(c.attrs<GradDataAttrs>(), c.out(0), c.in(0));
                  Layer::Infer(c.attrs<GradDataAttrs>(), c.out(0), c.in(1), c.in(0));
                },
            .check = Check<GradDataAttrs>,
            .gradient = GradDataGradient,
            .operations = [](auto in, auto) { return OperationsOfSums(in[0], in[1]); },
            .zero_to_zero = true};
  }
  static OpDef GradWeight(std::string doc) {
    return {.name = std::string(Layer::kName) + "GradWeight",
            .doc = std::move(doc),
            .attrs_type = &AttrsOf<Attrs>(),
            .inputs = {"output_grad", "data"},
            .outputs = {"weight_grad", Optional("bias_grad", Unless(&Attrs::no_bias))},
            .infer =
                [](InferContext& c) {
                  SameDTypes(c);
                  Layer::Infer(c.attrs<Attrs>(), c.in(1), c.out(0), c.in(0));
                  c.out(1).Set({Layer::Outputs(c.attrs<Attrs>())});
                },
            .check = Check<Attrs>,
            .gradient = GradWeightGradient,
            .operations = [](auto in, auto out) { return OperationsOfSums(in[0], out[0]); },
            .zero_to_zero = true};
  }

 private:
  template <OpAttrs OwnAttrs>
  static void Check(const AnyAttrs& attrs) {
    Layer::Check(attrs.get<OwnAttrs>());
  }

  static Attrs Linear(Attrs attrs, bool no_bias) {
    attrs.activation = ActivationType::kNone;
    attrs.no_bias = no_bias;
    return attrs;
  }

  // With g = dy f': dx, dw and db by g.
  static std::vector<Symbol> Gradient(const GradientContext& g) {
    const auto& attrs = g.attrs<Attrs>();
    Symbol dy = g.output_grad(0);
    if (attrs.activation != ActivationType::kNone) dy = ActivationGrad(dy, g.output(0), {attrs.activation});
    std::vector<Symbol> result(g.num_inputs());
    if (g.wants(0)) result[0] = Layer::GradData(dy, g.input(1), Linear(attrs, true), [&] { return g.shape(0); });
    const bool wants_bias = !attrs.no_bias && g.wants(2);
    if (g.wants(1) || wants_bias) {
      const Symbol grads = Layer::kGradWeight(dy, g.input(0), Linear(attrs, !wants_bias));
      if (g.wants(1)) result[1] = grads[0];
      if (wants_bias) result[2] = grads[1];
    }
    return result;
  }

  // (dy, w) -> dx is bilinear. With G the gradient of dx: d/d dy = L(G, w), d/d w = the weight's by dy and G.
  static std::vector<Symbol> GradDataGradient(const GradientContext& g) {
    Attrs attrs = Linear(g.attrs<GradDataAttrs>(), true);
    Layer::SetOutputs(attrs, g);
    const Symbol& grad = g.output_grad(0);
    std::vector<Symbol> result(2);
    if (g.wants(0)) result[0] = Layer::kForward(grad, g.input(1), {}, attrs);
    if (g.wants(1)) result[1] = Layer::kGradWeight(g.input(0), grad, attrs);
    return result;
  }

  // (dy, x) -> dw, db is bilinear. With G, h the gradients of dw and db: d/d dy = L(x, G) + h, d/d x = the data's by dy
  // and G.
  static std::vector<Symbol> GradWeightGradient(const GradientContext& g) {
    const auto& attrs = g.attrs<Attrs>();
    const Symbol& grad = g.output_grad(0);
    const Symbol bias = attrs.no_bias ? Symbol() : g.output_grad(1);
    std::vector<Symbol> result(2);
    if (g.wants(0)) {
      result[0] = grad.empty() ? Layer::Spread(bias, attrs, g.shape(0))
                               : Layer::kForward(g.input(1), grad, bias, Linear(attrs, bias.empty()));
    }
    if (g.wants(1) && !grad.empty()) {
      result[1] = Layer::GradData(g.input(0), grad, Linear(attrs, true), [&] { return g.shape(1); });
    }
    return result;
  }
};

}  // namespace bindery::rule
