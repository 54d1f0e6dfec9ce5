#include "symbol/ops/common.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {

Symbol Cast(const Symbol& data, const CastAttrs& attrs, const std::string& name) {
  return Apply(CastOp(), attrs, {data}, name);
}

const OpDef& CastOp() {
  static const OpDef op = {
      .name = "Cast",
      .doc = "The same numbers in another element type; integers round to nearest even and saturate.",
      .attrs_type = &AttrsOf<CastAttrs>(),
      .infer_shape = rule::AllAlike,
      .infer_dtype = [](InferDTypeContext& c) { c.SetOutput(0, c.attrs<CastAttrs>().dtype); },  // of any type
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy in x's type
        return {Apply(CastLikeOp(), {}, {g.output_grad(0), g.input(0)}, g.NameFor("data"))};
      },
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& CastLikeOp() {
  static const OpDef op = {
      .name = "CastLike",
      .doc = "data in the element type of `like`, of whatever shape that is.",
      .inputs = rule::Inputs({"data", "like"}),
      .shape_only = {1},
      .infer_shape =
          [](InferContext& c) {
            rule::Alike({rule::Value::In(c, 0), rule::Value::Out(c, 0)});
          },
      .infer_dtype = [](InferDTypeContext& c) { rule::AlikeDTypes(c, {1}, {0}); },
      .batch_axis = rule::BatchedAs(0),
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        return {Apply(CastLikeOp(), {}, {g.output_grad(0), g.input(0)}, g.NameFor("data")), {}};
      },
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
