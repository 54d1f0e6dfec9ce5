// What convolution and the fully connected layer have in common: y = f(L(x, w) + b), with L linear in the data and in
// the weight, so that its gradients are made of the same three operators again. A layer is described by
//
//   using Attrs = ...;                     with no_bias and activation
//   Symbol Forward(x, w, b, attrs);        y; no bias if `b` is empty
//   Symbol GradData(dy, w, attrs, shape);  shape() tells that of x; asked for only where it does not follow
//   Symbol GradWeight(dy, x, attrs);       dw [, db]
//   Symbol Spread(b, attrs, shape);        a bias in the shape of y
//
// Private to symbol/ops.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/rules.h"

namespace bindery::rule {

template <class Layer>
struct LinearLayer {
  using Attrs = typename Layer::Attrs;

  static Attrs Linear(Attrs attrs, bool no_bias) {
    attrs.activation = ActivationType::kNone;
    attrs.no_bias = no_bias;
    return attrs;
  }

  static Symbol Make(const OpDef& op, const Symbol& data, const Symbol& weight, const Symbol& bias, const Attrs& attrs,
                     const std::string& name) {
    if (attrs.no_bias && !bias.empty()) Throw<ModelError>("{}: a bias is given, but no_bias is set", op.name);
    std::vector<Symbol> inputs = {data, weight};
    if (!attrs.no_bias) inputs.push_back(bias);
    return Apply(op, attrs, std::move(inputs), name);
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
      const Symbol grads = Layer::GradWeight(dy, g.input(0), Linear(attrs, !wants_bias));
      if (g.wants(1)) result[1] = grads[0];
      if (wants_bias) result[2] = grads[1];
    }
    return result;
  }

  // (dy, w) -> dx is bilinear. With G the gradient of dx: d/d dy = L(G, w), d/d w = the weight's by dy and G.
  template <OpAttrs OwnAttrs>
  static std::vector<Symbol> GradDataGradient(const GradientContext& g) {
    const Attrs attrs = Linear(g.attrs<OwnAttrs>(), true);
    const Symbol& grad = g.output_grad(0);
    std::vector<Symbol> result(2);
    if (g.wants(0)) result[0] = Layer::Forward(grad, g.input(1), {}, attrs);
    if (g.wants(1)) result[1] = Layer::GradWeight(g.input(0), grad, attrs);
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
                               : Layer::Forward(g.input(1), grad, bias, Linear(attrs, bias.empty()));
    }
    if (g.wants(1) && !grad.empty()) {
      result[1] = Layer::GradData(g.input(0), grad, Linear(attrs, true), [&] { return g.shape(1); });
    }
    return result;
  }
};

}  // namespace bindery::rule
