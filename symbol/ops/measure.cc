#include "symbol/ops/measure.h"

#include "base/error.h"
#include "base/exact_sum.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

constexpr char kNoGradient[] = "it serves metrics and checks";

// (data [, place]) -> output. Places may be of any type.
void InferPlace(InferContext& c, int64_t along, bool keepdims) {
  c.out(0).SetDType(DType::kInt64);
  rule::InferAlongAxis(along, keepdims, c.in(0), c.num_inputs() > 1 ? c.in(1) : c.out(0), c.out(0));
}

OpDef Arg(std::string name, std::string doc) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ArgAttrs>(),
      .infer = [](InferContext& c) { InferPlace(c, c.attrs<ArgAttrs>().axis, c.attrs<ArgAttrs>().keepdims); },
      .check = rule::CheckAxis<ArgAttrs>,
      .not_differentiable = kNoGradient,
  };
}

// data, of any type -> (kSize), float64
template <int kSize>
OpDef Summary(std::string name, std::string doc) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .infer =
          [](InferContext& c) {
            c.out(0).Set({kSize});
            c.out(0).SetDType(DType::kFloat64);
          },
      .not_differentiable = kNoGradient,
  };
}

}  // namespace

const OpDef& ArgMaxOp() {
  static const OpDef op = Arg("ArgMax", "Along an axis, where the first of the largest elements is.");
  return op;
}

const OpDef& ArgMinOp() {
  static const OpDef op = Arg("ArgMin", "Along an axis, where the first of the smallest elements is.");
  return op;
}

const OpDef& RankOfOp() {
  static const OpDef op = {
      .name = "RankOf",
      .doc = "Along an axis, how many elements are larger than the one at a place, or equal and before it.",
      .attrs_type = &AttrsOf<PlaceAttrs>(),
      .inputs = {"data", "place"},
      .infer = [](InferContext& c) { InferPlace(c, c.attrs<PlaceAttrs>().axis, false); },
      .check = rule::CheckAxis<PlaceAttrs>,
      .not_differentiable = kNoGradient,
  };
  return op;
}

const OpDef& SumExactlyOp() {
  static const OpDef op = Summary<ExactSum::kSize>("SumExactly", "The sum of all elements, whatever their order.");
  return op;
}

const OpDef& FirstOutsideOp() {
  static const OpDef op = [] {
    OpDef def = Summary<2>("FirstOutside", "Place and value of the first element outside an interval; or -1 and 0.");
    def.attrs_type = &AttrsOf<FirstOutsideAttrs>();
    def.check = [](const AnyAttrs& any) {
      const auto& attrs = any.get<FirstOutsideAttrs>();
      rule::CheckFinite("low", attrs.low);
      rule::CheckFinite("high", attrs.high);
      rule::CheckFinite("ignore", attrs.ignore);
    };
    return def;
  }();
  return op;
}

}  // namespace bindery
