#include "symbol/ops/recurrent.h"

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/dropout.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;
using Attrs = RecurrentAttrs;

int64_t GatesOf(const Attrs& attrs) {
  return attrs.cell == RecurrentCell::kLstm ? 4 : attrs.cell == RecurrentCell::kGru ? 3 : 1;
}
bool IsLstm(const Attrs& attrs) { return attrs.cell == RecurrentCell::kLstm; }
bool HasGates(const Attrs& attrs) { return GatesOf(attrs) > 1; }
bool ResetsAfter(const Attrs& attrs) { return attrs.cell == RecurrentCell::kGru && attrs.reset_after; }
bool HasInitialCell(const Attrs& attrs) { return attrs.initial && IsLstm(attrs); }

void CheckRecurrentAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<Attrs>();
  rule::CheckAtLeast("hidden", attrs.hidden, 1);
  CheckedMul(attrs.hidden, 4, "the extent of all gates");
  rule::CheckNotNegative("clip", attrs.clip);
  if (!IsLstm(attrs) && (attrs.peepholes || attrs.coupled))
    throw ModelError("only an LSTM has peepholes or coupled gates");
}

// Values of each step, of each sample, and of neither.
struct RecurrentValues {
  std::vector<std::pair<Value, int64_t>> steps;  // with their last extent
  std::vector<Value> states;                     // (N, H)
  Value lengths;
};

void InferRecurrent(InferContext& c, const Attrs& attrs, Value weight, Value peephole, const RecurrentValues& v) {
  const int64_t hidden = attrs.hidden;
  weight.Set({GatesOf(attrs) * hidden, hidden});
  peephole.Set({3 * hidden});
  std::optional<DType> dtype = weight.dtype();
  for (const auto& [value, extent] : v.steps) dtype = dtype ? dtype : value.dtype();
  for (const Value& value : v.states) dtype = dtype ? dtype : value.dtype();
  if (dtype) {
    if (!IsFloat(*dtype)) Throw<ShapeError>("takes floating point numbers, got {}", *dtype);
    for (const auto& [value, extent] : v.steps) value.SetDType(*dtype);
    for (const Value& value : v.states) value.SetDType(*dtype);
    for (const Value& value : {weight, peephole}) value.SetDType(*dtype);
  }
  if (c.may_assume() && !v.lengths.dtype()) v.lengths.SetDType(DType::kInt64);

  const int time = attrs.layout == SequenceLayout::kTnc ? 0 : 1, sample = 1 - time;
  Shape rows = rule::Unknown(3);
  const auto learn = [&](int axis, int64_t extent) {
    if (rows[axis] == kUnknownDim) rows.Set(axis, extent);  // where they differ, setting below complains
  };
  for (const auto& [value, extent] : v.steps) {
    if (value.shape()) rule::ExpectRank(*value.shape(), 3, time == 0 ? "(T, N, C)" : "(N, T, C)");
    for (int axis = 0; axis < 2 && value.shape(); ++axis) learn(axis, (*value.shape())[axis]);
  }
  for (const Value& value : v.states) {
    if (value.shape() && value.shape()->rank() == 2) learn(sample, (*value.shape())[0]);
  }
  if (v.lengths.shape() && v.lengths.shape()->rank() == 1) learn(sample, (*v.lengths.shape())[0]);
  for (const auto& [value, extent] : v.steps) value.Set(rows.With(2, extent));
  for (const Value& value : v.states) value.Set({rows[sample], hidden});
  v.lengths.Set({rows[sample]});

  // Samples stay apart, all along N.
  std::vector<std::pair<Value, int>> places;
  for (const auto& [value, extent] : v.steps) places.emplace_back(value, sample);
  for (const Value& value : v.states) places.emplace_back(value, 0);
  places.emplace_back(v.lengths, 0);
  for (const auto& [from, own] : places) {
    for (const auto& [to, other] : places) {
      from.Carry(to, [&, own = own, other = other](int axis) { return axis == own ? other : -1; });
    }
  }
}

void InferStates(InferContext& c) {
  const auto& attrs = c.attrs<Attrs>();
  const int64_t hidden = attrs.hidden;
  c.in(2).Set({hidden});
  rule::SameDType({c.in(1), c.in(2)});
  InferRecurrent(c, attrs, c.in(1), c.in(3),
                 {{{c.in(0), GatesOf(attrs) * hidden},
                   {c.out(0), hidden},
                   {c.out(3), hidden},
                   {c.out(4), 4 * hidden},
                   {c.out(5), hidden}},
                  {c.in(4), c.in(5), c.out(1), c.out(2)},
                  c.in(6)});
}

void InferStatesGrad(InferContext& c) {
  const auto& attrs = c.attrs<Attrs>();
  const int64_t hidden = attrs.hidden, gates = GatesOf(attrs) * hidden;
  InferRecurrent(c, attrs, c.in(3), c.in(4),
                 {{{c.in(0), hidden},
                   {c.in(6), hidden},
                   {c.in(7), HasGates(attrs) ? 4 * hidden : hidden},
                   {c.in(8), hidden},
                   {c.out(0), gates},
                   {c.out(3), gates}},
                  {c.in(1), c.in(2), c.out(1), c.out(2)},
                  c.in(5)});
}

// Elements [begin, end) hidden units of the last axis, or of an axis.
Symbol Units(const Symbol& x, int64_t hidden, int64_t begin, int64_t end, int64_t axis = -1) {
  return Slice(x, {.begin = {begin * hidden}, .end = {end * hidden}, .axes = {axis}});
}

// With d the gradients of the products R h: dR = sum over steps of d h^T, a product for all steps.
std::vector<Symbol> RecurrentGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<Attrs>();
  const Slots &inputs = RecurrentOp().inputs, &outputs = RecurrentOp().outputs;
  const auto in = [&](int slot) { return inputs.Place(attrs, slot); };
  const auto output = [&](int slot) { return g.output(outputs.Place(attrs, slot)); };
  const auto grad = [&](int slot) {
    const int place = outputs.Place(attrs, slot);
    return g.output_grad(place).empty() ? rule::Zeros(g.output_shape(place), g.output_dtype(place))
                                        : g.output_grad(place);
  };
  std::vector<Symbol> arguments = {grad(0), grad(1)};
  if (IsLstm(attrs)) arguments.push_back(grad(2));
  arguments.push_back(g.input(1));
  if (attrs.peepholes) arguments.push_back(g.input(in(3)));
  if (attrs.lengths) arguments.push_back(g.input(in(6)));
  const Symbol previous = output(3), saved = HasGates(attrs) ? output(4) : g.output(0);
  arguments.push_back(previous);
  arguments.push_back(saved);
  if (IsLstm(attrs)) arguments.push_back(output(5));
  const Symbol grads = Apply(RecurrentGradOp(), attrs, std::move(arguments), "");

  const Symbol data_grad = grads[0], products = ResetsAfter(attrs) ? grads[2] : grads[0];
  const int64_t hidden = attrs.hidden, gates = GatesOf(attrs);
  std::vector<Symbol> result(g.num_inputs());
  result[0] = data_grad;
  const auto weight_grad = [&](const Symbol& d, const Symbol& x, int64_t rows) {
    return FullyConnectedGradWeight(d, x, {.num_hidden = rows * hidden, .no_bias = true, .flatten = false});
  };
  if (g.wants(1) && attrs.cell == RecurrentCell::kGru && !attrs.reset_after) {
    const Symbol of_gates = weight_grad(Units(products, hidden, 0, 2), previous, 2);
    const Symbol of_state = weight_grad(Units(products, hidden, 2, 3), Units(saved, hidden, 3, 4), 1);
    result[1] = Concat({of_gates, of_state}, {.axis = 0});
  } else if (g.wants(1)) {
    result[1] = weight_grad(products, previous, gates);
  }
  const auto place = [&](int slot, const Symbol& gradient) {
    if (in(slot) >= 0 && g.wants(in(slot))) result[in(slot)] = gradient;
  };
  const auto sum = [](const Symbol& x) { return Sum(x, {.axes = {0, 1}}); };
  if (ResetsAfter(attrs)) place(2, sum(Units(products, hidden, 2, 3)));
  if (attrs.peepholes && g.wants(in(3))) {
    const RecurrentForm form = FormOf(attrs, {1, 1, gates * hidden});
    const auto gate = [&](const Symbol& all, int k) { return Units(all, hidden, form.place[k], form.place[k] + 1); };
    const Symbol before = output(5), cell = gate(saved, 1) * before + gate(saved, 0) * gate(saved, 2);
    std::array<Symbol, 3> parts;
    parts[form.peephole[0]] = sum(gate(data_grad, 0) * before);
    parts[form.peephole[1]] = sum(gate(data_grad, 1) * before);
    parts[form.peephole[2]] = sum(gate(data_grad, 3) * cell);
    result[in(3)] = Concat({parts[0], parts[1], parts[2]}, {.axis = 0});
  }
  place(4, grads[1]);
  if (HasInitialCell(attrs)) place(5, grads[2]);
  return result;
}

// A step multiplies a sample's state by the weights of the gates; its gradient, those of the gates.
double OperationsOfStates(const Shape& gates, int64_t hidden) {
  return 2.0 * static_cast<double>(gates.Elements()) * static_cast<double>(hidden);
}

}  // namespace

Symbol Recurrent(const std::vector<Symbol>& inputs, const Attrs& attrs, const std::string& name) {
  return Apply(RecurrentOp(), attrs, inputs, name);
}

RnnResult Rnn(const Symbol& data, const RnnAttrs& attrs, const std::string& name, const std::vector<Symbol>& states,
              const std::vector<Symbol>& cells, const Symbol& lengths) {
  if (name.empty()) throw ModelError("Rnn: the name must be given, its weights are named after it");
  constexpr int64_t kMostLayers = 1000;
  if (attrs.layers < 1 || attrs.layers > kMostLayers || attrs.hidden < 1) {
    Throw<ModelError>("Rnn \"{}\": expected hidden units and 1 to {} layers, got {} and {}", name, kMostLayers,
                      attrs.hidden, attrs.layers);
  }
  if (!(attrs.dropout >= 0 && attrs.dropout < 1)) {
    Throw<ModelError>("Rnn \"{}\": dropout must be from 0 to below 1, got {}", name, attrs.dropout);
  }
  Attrs one{.cell = attrs.cell, .hidden = attrs.hidden, .layout = attrs.layout};
  const int64_t directions = attrs.bidirectional ? 2 : 1, rows = CheckedMul(GatesOf(one), attrs.hidden);
  const size_t all = static_cast<size_t>(attrs.layers * directions);
  one.initial = !states.empty();
  one.lengths = !lengths.empty();
  if ((one.initial || !cells.empty()) && (states.size() != all || cells.size() != (HasInitialCell(one) ? all : 0))) {
    Throw<ModelError>("Rnn \"{}\": expected {} initial states and, of an LSTM, as many cells, got {} and {}", name, all,
                      states.size(), cells.size());
  }
  RnnResult result{.output = data, .states = {}, .cells = {}};
  for (int64_t layer = 0; layer < attrs.layers; ++layer) {
    if (layer > 0 && attrs.dropout > 0) {
      result.output = Dropout(result.output, {.p = attrs.dropout}, fmt::format("{}_l{}_dropout", name, layer));
    }
    std::vector<Symbol> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string own = fmt::format("{}_l{}{}", name, layer, direction == 1 ? "_reverse" : "");
      one.reverse = direction == 1;
      std::vector<Symbol> inputs = {
          FullyConnected(result.output, {.num_hidden = rows, .flatten = false}, own + "_input"),
          Variable(own + "_weight")};
      if (ResetsAfter(one)) inputs.push_back(Variable(own + "_bias"));
      const size_t index = result.states.size();
      if (one.initial) inputs.push_back(states[index]);
      if (HasInitialCell(one)) inputs.push_back(cells[index]);
      if (one.lengths) inputs.push_back(lengths);
      const Symbol y = Recurrent(inputs, one, own);
      outputs.push_back(y[0]);
      result.states.push_back(y[1]);
      if (IsLstm(one)) result.cells.push_back(y[2]);
    }
    result.output =
        directions == 1 ? outputs[0] : Concat(outputs, {.axis = 2}, fmt::format("{}_l{}_both", name, layer));
  }
  return result;
}

RecurrentForm FormOf(const Attrs& attrs, const Shape& data) {
  const bool time_first = attrs.layout == SequenceLayout::kTnc, common = attrs.order == GateOrder::kCommon;
  RecurrentForm form{};
  form.steps = data[time_first ? 0 : 1];
  form.samples = data[time_first ? 1 : 0];
  form.hidden = attrs.hidden;
  form.gates = GatesOf(attrs);
  form.saved = HasGates(attrs) ? 4 : 1;
  form.next_step = time_first ? form.samples : 1;
  form.next_sample = time_first ? 1 : form.steps;
  if (IsLstm(attrs)) {
    form.place = common ? std::array<int64_t, 4>{0, 1, 2, 3} : std::array<int64_t, 4>{0, 2, 3, 1};
  } else if (HasGates(attrs)) {
    form.place = common ? std::array<int64_t, 4>{0, 1, 2, 3} : std::array<int64_t, 4>{1, 0, 2, 3};
  }
  form.peephole = common ? std::array<int64_t, 3>{0, 1, 2} : std::array<int64_t, 3>{0, 2, 1};
  return form;
}

const OpDef& RecurrentOp() {
  static const OpDef op = {
      .name = "Recurrent",
      .doc = "A recurrent layer in one direction, of data that is projected already: h' = cell(x, R h).",
      .attrs_type = &AttrsOf<Attrs>(),
      .inputs = {"data", "weight", Optional("bias", If(ResetsAfter)), Optional("peephole", If(&Attrs::peepholes)),
                 Optional("initial_state", If(&Attrs::initial)), Optional("initial_cell", If(HasInitialCell)),
                 Optional("lengths", If(&Attrs::lengths))},
      .outputs = {"output", "state", Optional("cell", If(IsLstm)), Hidden("previous"),
                  Hidden(Optional("saved", If(HasGates))), Hidden(Optional("previous_cell", If(IsLstm)))},
      .infer = InferStates,
      .asks = {{.input = "lengths",
                .range =
                    [](const AnyAttrs& any, auto in) {
                      return WholeNumbers::UpTo(in[0][any.get<Attrs>().layout == SequenceLayout::kTnc ? 0 : 1]);
                    }}},
      .check = CheckRecurrentAttrs,
      .gradient = RecurrentGradient,
      .operations = [](auto in, auto) { return OperationsOfStates(in[0], in[1][-1]); },
  };
  return op;
}

const OpDef& RecurrentGradOp() {
  static const OpDef op = {
      .name = "RecurrentGrad",
      .doc = "Recurrent's gradients with respect to its data, to its initial states, and to the products R h.",
      .attrs_type = &AttrsOf<Attrs>(),
      .inputs = {"output_grad", "state_grad", Optional("cell_grad", If(IsLstm)), "weight",
                 Optional("peephole", If(&Attrs::peepholes)), Optional("lengths", If(&Attrs::lengths)), "previous",
                 "saved", Optional("previous_cell", If(IsLstm))},
      .outputs = {"data_grad", "initial_state_grad", Optional("initial_cell_grad", If(IsLstm)),
                  Optional("product_grad", If(ResetsAfter))},
      .infer = InferStatesGrad,
      .check = CheckRecurrentAttrs,
      .not_differentiable = "the second derivative of a recurrent layer is not provided",
      .operations = [](auto in, auto out) { return OperationsOfStates(out[0], in[0][-1]); },
  };
  return op;
}

}  // namespace bindery
