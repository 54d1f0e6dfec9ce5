#include "symbol/ops/sequence.h"

#include "base/error.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

// No axes as long as the shape of data is not known.
std::optional<SequenceAxes> InferLengths(const SequenceAttrs& attrs, Value data, Value lengths) {
  lengths.Set(rule::Unknown(1));
  if (!data.shape()) return std::nullopt;
  const SequenceAxes axes = AxesOf(attrs, *data.shape());
  lengths.Set({(*data.shape())[axes.samples]});
  data.Set(data.shape()->With(axes.samples, (*lengths.shape())[0]));
  return axes;
}

// Along the axis of the steps samples are mixed.
template <class Attrs>
void InferSteps(InferContext& c) {
  const Value data = c.in(0), lengths = c.in(1), output = c.out(0);
  rule::Same({data, output});
  if (const auto axes = InferLengths(c.attrs<Attrs>(), data, lengths)) {
    lengths.Carry(output, [&](int) { return axes->samples; });
    data.Carry(output, [&](int axis) { return axis == axes->steps ? -1 : axis; });
  }
  rule::SameShape({data, output});
}

// The value without steps is that of one step.
void InferLast(const SequenceAttrs& attrs, Value data, Value lengths, Value last) {
  rule::SameDType({data, last});
  const std::optional<SequenceAxes> known = InferLengths(attrs, data, lengths);
  if (!known) return;
  const SequenceAxes axes = *known;
  const int64_t steps = (*data.shape())[axes.steps];
  last.Set(data.shape()->Erase(axes.steps));
  data.Set(last.shape()->Insert(axes.steps, steps));
  if (data.Known() && steps == 0 && last.shape()->Elements() != 0) {
    Throw<ShapeError>("there are no steps along axis {} of {}", axes.steps, *data.shape());
  }
  const auto beside = [=](int axis) { return axis - (axes.steps < axis); };
  data.Carry(last, [&](int axis) { return axis == axes.steps ? -1 : beside(axis); });
  lengths.Carry(last, [&](int) { return beside(axes.samples); });
  last.Carry(data, [&](int axis) { return axis + (axes.steps <= axis); });
  lengths.Carry(data, [&](int) { return axes.samples; });
}

void CheckAxes(const SequenceAttrs& attrs) {
  rule::CheckAxisAttr("axis", attrs.axis);
  rule::CheckAxisAttr("batch_axis", attrs.batch_axis);
}

template <class Attrs>
OpDef Sequence(std::string name, std::string doc, void (*infer)(InferContext&),
               std::vector<Symbol> (*gradient)(const GradientContext&), int64_t shortest = 0) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .attrs_type = &AttrsOf<Attrs>(),
          .inputs = {"data", "lengths"},
          .infer = infer,
          .asks = {{.input = "lengths",
                    .range =
                        [shortest](const AnyAttrs& any, auto in) {
                          return WholeNumbers::UpTo(in[0][AxesOf(any.get<Attrs>(), in[0]).steps], shortest);
                        }}},
          .check = [](const AnyAttrs& any) { CheckAxes(any.get<Attrs>()); },
          .gradient = gradient};
}

}  // namespace

SequenceAxes AxesOf(const SequenceAttrs& attrs, const Shape& data) {
  const SequenceAxes axes{rule::Axis(attrs.axis, data), rule::Axis(attrs.batch_axis, data)};
  if (axes.steps == axes.samples)
    Throw<ShapeError>("axis {} of {} cannot be of steps and of samples", axes.steps, data);
  return axes;
}

const OpDef& SequenceMaskOp() {
  static const OpDef op =
      Sequence<SequenceMaskAttrs>("SequenceMask", "data, and a value behind each sequence's end.",
                                  InferSteps<SequenceMaskAttrs>, [](const GradientContext& g) -> std::vector<Symbol> {
                                    SequenceMaskAttrs attrs = g.attrs<SequenceMaskAttrs>();
                                    attrs.value = 0;
                                    return {SequenceMask(g.output_grad(0), g.input(1), attrs), {}};
                                  });
  return op;
}

const OpDef& SequenceReverseOp() {
  static const OpDef op = Sequence<SequenceAttrs>(
      "SequenceReverse", "The steps of each sequence in reverse order; those behind its end stay.",
      InferSteps<SequenceAttrs>, [](const GradientContext& g) -> std::vector<Symbol> {
        return {SequenceReverse(g.output_grad(0), g.input(1), g.attrs<SequenceAttrs>()), {}};
      });
  return op;
}

const OpDef& SequenceLastOp() {
  static const OpDef op = Sequence<SequenceAttrs>(
      "SequenceLast", "The last step of each sequence.",
      [](InferContext& c) { InferLast(c.attrs<SequenceAttrs>(), c.in(0), c.in(1), c.out(0)); },
      [](const GradientContext& g) -> std::vector<Symbol> {
        SequenceLastGradAttrs attrs{g.attrs<SequenceAttrs>(), {}, {}};
        attrs.shape = rule::FixedParts(g.shape(0));
        attrs.batches = rule::BatchParts(g.shape(0));
        return {SequenceLastGrad(g.output_grad(0), g.input(1), attrs), {}};
      },
      /*shortest=*/1);
  return op;
}

const OpDef& SequenceLastGradOp() {
  static const OpDef op = {
      .name = "SequenceLastGrad",
      .doc = "dx = dy at the last step of each sequence, 0 elsewhere.",
      .attrs_type = &AttrsOf<SequenceLastGradAttrs>(),
      .inputs = {"output_grad", "lengths"},
      .infer =
          [](InferContext& c) {
            const auto& attrs = c.attrs<SequenceLastGradAttrs>();
            const rule::ExtentList list{attrs.shape, attrs.batches};
            c.out(0).Set(rule::ShapeAt(list, c.batch()));
            InferLast(attrs, c.out(0), c.in(1), c.in(0));
            if (list.FirstFollowing() >= 0) c.PlaceBatch(0, list.FirstFollowing());
          },
      .check =
          [](const AnyAttrs& any) {
            const auto& attrs = any.get<SequenceLastGradAttrs>();
            CheckAxes(attrs);
            rule::CheckExtentsAttr({attrs.shape, attrs.batches});
          },
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        return {SequenceLast(g.output_grad(0), g.input(1), g.attrs<SequenceLastGradAttrs>()), {}};
      },
  };
  return op;
}

}  // namespace bindery
