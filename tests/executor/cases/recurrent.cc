#include "symbol/ops/recurrent.h"

#include "tests/executor/cases/operator_cases.h"

namespace bindery {

std::vector<OperatorCase> RecurrentCases() {
  std::vector<OperatorCase> cases;
  // 3 steps of 4 samples, `hidden` units.
  const auto add = [&](const std::string& name, const RecurrentAttrs& attrs) {
    const bool is_lstm = attrs.cell == RecurrentCell::kLstm, is_gru = attrs.cell == RecurrentCell::kGru;
    const bool time_first = attrs.layout == SequenceLayout::kTnc;
    const int64_t hidden = attrs.hidden, gates = is_lstm ? 4 : is_gru ? 3 : 1;
    OperatorCase c{.name = "recurrent, " + name,
                   .batch_axes = {{"x", time_first ? 1 : 0}},
                   .terms = 24,
                   .tolerance = 4,
                   .magnitude = 1,
                   .stored = 0.5};  // gradients are sums of gates
    std::vector<Symbol> inputs;
    const auto input = [&](const char* variable, HostTensor value) {
      inputs.push_back(Variable(variable));
      c.inputs[variable] = std::move(value);
    };
    input("x", Uniform(time_first ? Shape{3, 4, gates * hidden} : Shape{4, 3, gates * hidden}));
    input("w", Uniform({gates * hidden, hidden}));
    if (is_gru && attrs.reset_after) input("b", Uniform({hidden}));
    if (attrs.peepholes) input("p", Uniform({3 * hidden}));
    if (attrs.initial) input("h", Uniform({4, hidden}));
    if (attrs.initial && is_lstm) input("c", Uniform({4, hidden}));
    for (const char* variable : {"h", "c"}) {
      if (c.inputs.contains(variable)) c.batch_axes[variable] = 0;
    }
    if (attrs.lengths) {
      input("n", Values({4}, {2, 3, 0, 1}));
      c.dtypes["n"] = DType::kInt32;
      c.batch_axes["n"] = 0;
    }
    c.symbol = Recurrent(inputs, attrs, "y");
    c.wrong_shapes = {{{"x", {3, 4, gates * hidden + 1}}, {"w", {gates * hidden, hidden}}}};
    cases.push_back(std::move(c));
  };
  for (const RecurrentCell cell :
       {RecurrentCell::kRelu, RecurrentCell::kTanh, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    const std::string name = EnumNames(static_cast<RecurrentCell*>(nullptr))[static_cast<size_t>(cell)].name;
    add(name, {.cell = cell, .hidden = 2});
    add(name + " of everything", {.cell = cell,
                                  .hidden = 3,
                                  .layout = SequenceLayout::kNtc,
                                  .order = GateOrder::kOnnx,
                                  .reverse = true,
                                  .initial = true,
                                  .lengths = true});
    add(name + " with lengths", {.cell = cell, .hidden = 2, .initial = true, .lengths = true});
    add(name + ", clipped", {.cell = cell, .hidden = 2, .clip = 0.8});
    cases.back().test_dtypes = {DType::kFloat64};  // a rounded gate may be cut or not
  }
  add("lstm with peepholes", {.hidden = 2, .peepholes = true, .initial = true});
  add("lstm with peepholes in ONNX' order",
      {.hidden = 2, .order = GateOrder::kOnnx, .peepholes = true, .coupled = true});
  add("lstm with coupled gates", {.hidden = 2, .coupled = true});
  const RecurrentAttrs before{
      .cell = RecurrentCell::kGru, .hidden = 3, .reset_after = false, .initial = true, .lengths = true};
  add("gru that resets before the product", before);
  RecurrentAttrs other = before;
  other.reverse = true;
  other.order = GateOrder::kOnnx;
  add("gru that resets before the product, in ONNX' order", other);
  // More than one block of hidden units; finite differences take long.
  const RecurrentAttrs everything{.hidden = 67,
                                  .layout = SequenceLayout::kNtc,
                                  .order = GateOrder::kOnnx,
                                  .reverse = true,
                                  .initial = true,
                                  .lengths = true};
  std::vector<RecurrentAttrs> large = {{.hidden = 67},
                                       {.cell = RecurrentCell::kGru, .hidden = 67},
                                       {.cell = RecurrentCell::kGru, .hidden = 67, .reset_after = false},
                                       {.cell = RecurrentCell::kTanh, .hidden = 67},
                                       {.cell = RecurrentCell::kGru, .hidden = 260},  // more than are added up at once
                                       {.cell = RecurrentCell::kTanh, .hidden = 260},
                                       {.hidden = 67, .peepholes = true, .initial = true},
                                       {.hidden = 67, .coupled = true}};
  for (const RecurrentCell cell : {RecurrentCell::kRelu, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    large.push_back(everything);
    large.back().cell = cell;
  }
  large.push_back(large.back());
  large.back().reset_after = false;
  for (const RecurrentAttrs& attrs : large) {
    add(fmt::format("{} units, cell {}, reset_after {}{}{}{}", attrs.hidden, static_cast<int>(attrs.cell),
                    attrs.reset_after, attrs.lengths ? ", of everything" : "", attrs.peepholes ? ", peepholes" : "",
                    attrs.coupled ? ", coupled" : ""),
        attrs);
    cases.back().large = true;
    cases.back().terms = attrs.hidden > 100 ? 1000 : 300;
    const double most = attrs.hidden > 100 ? 0.1 : 0.2;
    cases.back().inputs["w"] = Uniform(cases.back().inputs["w"].shape(), -most, most);
  }
  return cases;
}

}  // namespace bindery
