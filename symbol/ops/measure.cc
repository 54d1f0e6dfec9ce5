#include "symbol/ops/measure.h"

#include "base/error.h"
#include "base/exact_sum.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

constexpr char kNoGradient[] = "it serves metrics and checks";

// (data [, place]) -> output: data's shape without the axis. Places may be of any type.
void InferPlace(InferContext& c) {
  const Value data = c.in(0), output = c.out(0);
  if (!data.shape()) return;
  const int axis = rule::Axis(c.attrs<PlaceAttrs>().axis, *data.shape());
  output.Set(data.shape()->Erase(axis));
  if (c.num_inputs() > 1) rule::SameShape({c.in(1), output});
  data.Set(output.shape()->Insert(axis, (*data.shape())[axis]));
  if (data.Known() && (*data.shape())[axis] == 0 && output.shape()->Elements() != 0) {
    Throw<ShapeError>("there are no elements along axis {} of {}", axis, *data.shape());
  }
  data.Carry(output, [&](int own) { return own == axis ? -1 : own - (axis < own ? 1 : 0); });
}

void InferPlaceAsNumber(InferContext& c) {
  c.out(0).SetDType(DType::kInt64);
  InferPlace(c);
}

void InferPick(InferContext& c) {
  rule::SameDType({c.in(0), c.out(0)});
  InferPlace(c);
}

OpDef Place(std::string name, std::string doc, Slots inputs, void (*infer)(InferContext&)) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<PlaceAttrs>(),
      .inputs = std::move(inputs),
      .infer = infer,
      .check = [](const AnyAttrs& attrs) { rule::CheckAxisAttr("axis", attrs.get<PlaceAttrs>().axis); },
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
  static const OpDef op =
      Place("ArgMax", "Along an axis, where the first of the largest elements is.", {"data"}, InferPlaceAsNumber);
  return op;
}

const OpDef& PickOp() {
  static const OpDef op = Place("Pick", "Along an axis, the element at a place.", {"data", "place"}, InferPick);
  return op;
}

const OpDef& RankOfOp() {
  static const OpDef op =
      Place("RankOf", "Along an axis, how many elements are larger than the one at a place, or equal and before it.",
            {"data", "place"}, InferPlaceAsNumber);
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
