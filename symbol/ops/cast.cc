#include "symbol/ops/cast.h"

#include "symbol/infer.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {

const OpDef& CastOp() {
  static const OpDef op = {
      .name = "Cast",
      .doc =
          "The same numbers in another element type; from integers to integers the low bits; from floating point "
          "to integers what is behind the point is cut, they saturate, and NaN is 0; to bool, not zero.",
      .attrs_type = &AttrsOf<CastAttrs>(),
      .infer =
          [](InferContext& c) {  // of any type
            rule::SameShape({c.in(0), c.out(0)});
            c.out(0).SetDType(c.attrs<CastAttrs>().dtype);
            c.in(0).Carry(c.out(0));
          },
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy in x's type; whole numbers go in steps, so nothing flows through them
        if (!IsFloat(g.attrs<CastAttrs>().dtype)) return {};
        return {Cast(g.output_grad(0), {.dtype = g.dtype(0)})};
      },
      .numbers = rule::CastNumbers,
      .is_view = [](const ViewContext& c) { return c.input.dtype == c.output.dtype; },
      .is_identity =
          [](const AnyAttrs& attrs, const std::vector<Entry>& inputs) {
            const Node& before = *inputs[0].node;
            return !before.is_variable() && &before.op() == &CastOp() && before.attrs() == attrs;
          },
      .zero_to_zero = true,
  };
  return op;
}

std::optional<Entry> CastFrom(const Node& node) {
  if (node.is_variable() || &node.op() != &CastOp()) return std::nullopt;
  return node.inputs()[0];
}

}  // namespace bindery
