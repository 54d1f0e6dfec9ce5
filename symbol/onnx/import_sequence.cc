// Recurrent layers, and sums as Einstein.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// Part `index` of `count` equal ones along an axis, which goes if it is the directions'.
Symbol Part(const Symbol& x, int64_t axis, int64_t begin, int64_t end) {
  return Slice(x, {.begin = {begin}, .end = {end}, .axes = {axis}});
}

// Exporters write states of zeros, of the file's own batch: without them they are zeros of any batch.
bool IsZero(Symbol value) {
  constexpr int kMaxSteps = 16;
  for (int i = 0; i < kMaxSteps && !value.entry().node->is_variable(); ++i) {
    const Node& node = *value.entry().node;
    if (const auto constant = ConstantValue(node)) {
      return *constant == HostTensor(constant->dtype(), constant->shape());
    }
    const auto is = [&](const OpDef* op) { return op == &node.op(); };
    const bool moves = std::ranges::any_of(
        std::initializer_list<const OpDef*>{&SliceOp(), &ReshapeOp(), &BroadcastToOp(), &ExpandOp(), &IdentityOp(),
                                            &SliceChannelOp(), &SplitOp(), &TransposeOp(), &TileOp(), &SqueezeOp(),
                                            &ExpandDimsOp(), &ReshapeBy.op(), &BroadcastToBy.op(), &ExpandBy.op(),
                                            &SliceBy.op(), &TileBy.op()},
        is);
    if (!moves) return false;
    value = Symbol(node.inputs()[0]);
  }
  return false;
}

void CheckActivations(Importer& im, const std::vector<std::string>& expected, size_t directions) {
  im.Ignore({"activation_alpha", "activation_beta"});
  const std::vector<std::string> said = im.Strings("activations");
  for (size_t i = 0; i < said.size(); ++i) {
    if (said.size() != expected.size() * directions || said[i] != expected[i % expected.size()]) {
      Throw<ModelError>("attribute \"activations\": only {} can be had", fmt::join(expected, ", "));
    }
  }
}

struct Recurrence {
  RecurrentCell cell;
  int64_t gates;
  std::vector<std::string> activations;
};

// X (T, N, C) or, with layout 1, (N, T, C); W (D, G H, C), R (D, G H, H), B (D, 2 G H) with D directions and G gates;
// lengths (N); initial states (D, N, H) or (N, D, H); peepholes (D, 3 H). Y (T, D, N, H) or (N, T, D, H), then the last
// states as the initial ones.
void ImportRecurrence(Importer& im, const Recurrence& kind) {
  const std::string direction = im.String("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    Throw<ModelError>("attribute \"direction\": expected forward, reverse or bidirectional, got \"{}\"", direction);
  }
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const bool batch_first = im.Int("layout", 0) != 0, is_lstm = kind.cell == RecurrentCell::kLstm;
  const Symbol weights = im.WeightIn(2);
  const int64_t hidden = im.ShapeOf(weights)[2], all = kind.gates * hidden;
  if (hidden == kUnknownDim || im.Int("hidden_size", hidden) != hidden) {
    Throw<ModelError>("attribute \"hidden_size\": the weights are {}", im.ShapeOf(weights));
  }
  RecurrentAttrs attrs{.cell = kind.cell,
                       .hidden = hidden,
                       .layout = batch_first ? SequenceLayout::kNtc : SequenceLayout::kTnc,
                       .order = GateOrder::kOnnx,
                       .reset_after = im.Flag("linear_before_reset"),
                       .peepholes = im.Has(7),
                       .coupled = im.Flag("input_forget"),
                       .clip = im.Float("clip", 0),
                       .initial = (im.Has(5) && !IsZero(im.In(5))) || (im.Has(6) && !IsZero(im.In(6))),
                       .lengths = im.Has(4)};
  CheckActivations(im, kind.activations, static_cast<size_t>(directions));
  im.Ignore({"output_sequence"});
  const bool own_bias = kind.cell == RecurrentCell::kGru && attrs.reset_after;
  const int64_t state_axis = batch_first ? 1 : 0;
  std::vector<Symbol> steps, states, cells;
  for (int64_t d = 0; d < directions; ++d) {
    attrs.reverse = d == 1 || direction == "reverse";
    const std::string name = directions == 1 ? im.name() : fmt::format("{}_{}", im.name(), d);
    const auto matrix = [&](const Symbol& x) {  // of this direction
      return Reshape(Part(x, 0, d, d + 1), {.shape = {all, -1}});
    };
    const auto vector = [&](const Symbol& x, int64_t begin, int64_t end) {
      return Reshape(Part(Part(x, 0, d, d + 1), 1, begin, end), {.shape = {-1}});
    };
    FullyConnectedAttrs product{.num_hidden = all, .no_bias = !im.Has(3), .flatten = false};
    std::vector<Symbol> layer = {im.In(0), matrix(im.WeightIn(1))}, inputs = {Symbol(), matrix(weights)};
    if (im.Has(3)) {
      const Symbol bias = im.WeightIn(3);
      // The last of a GRU's gates adds its own behind the reset.
      const int64_t shared = own_bias ? all - hidden : all;
      Symbol sum = vector(bias, 0, shared) + vector(bias, all, all + shared);
      if (own_bias) {
        sum = Concat({sum, vector(bias, shared, all)}, {.axis = 0});
        inputs.push_back(vector(bias, all + shared, 2 * all));
      }
      layer.push_back(sum);
    } else if (own_bias) {
      inputs.push_back(bindery::Constant(HostTensor(im.DTypeOf(weights), {hidden})));
    }
    inputs[0] = Apply(FullyConnectedOp(), product, layer, name + "_input");
    if (attrs.peepholes) inputs.push_back(vector(im.WeightIn(7), 0, 3 * hidden));
    if (attrs.initial) {
      for (const int state : {5, 6}) {
        if (state == 6 && !is_lstm) break;
        const int given = im.Has(state) ? state : 11 - state;
        PartialExtents extents = im.ExtentsOf(im.In(given));
        if (extents.size() != 3) Throw<ModelError>("input {}: expected three axes, got {}", given, extents.size());
        extents.erase(extents.begin() + state_axis);
        const Symbol value = ReshapeTo(Part(im.In(given), state_axis, d, d + 1), extents);
        inputs.push_back(im.Has(state) ? value : value * 0.0);
      }
    }
    if (attrs.lengths) inputs.push_back(im.In(4));
    const Symbol y = Recurrent(inputs, attrs, name);
    const auto extended = [&](const Symbol& x, int64_t axis) {  // with an axis for the directions
      PartialExtents extents = im.ExtentsOf(x);
      extents.insert(extents.begin() + axis, Extent{1, 0});
      return ReshapeTo(x, extents);
    };
    steps.push_back(extended(y[0], batch_first ? 2 : 1));
    states.push_back(extended(y[1], state_axis));
    if (is_lstm) cells.push_back(extended(y[2], state_axis));
  }
  const auto out = [&](int output, const std::vector<Symbol>& parts, int64_t axis) {
    im.Out(output, parts.size() == 1 ? parts[0] : Concat(parts, {.axis = axis}));
  };
  out(0, steps, batch_first ? 2 : 1);
  out(1, states, state_axis);
  if (is_lstm) out(2, cells, state_axis);
}

void ImportLSTM(Importer& im) { ImportRecurrence(im, {RecurrentCell::kLstm, 4, {"Sigmoid", "Tanh", "Tanh"}}); }
void ImportGRU(Importer& im) { ImportRecurrence(im, {RecurrentCell::kGru, 3, {"Sigmoid", "Tanh"}}); }
void ImportRNN(Importer& im) {
  const std::vector<std::string> activations = im.Strings("activations");
  const bool relu = !activations.empty() && activations[0] == "Relu";
  ImportRecurrence(im, {relu ? RecurrentCell::kRelu : RecurrentCell::kTanh, 1, {relu ? "Relu" : "Tanh"}});
}

void ImportEinsum(Importer& im) {
  const std::vector<Symbol> operands = im.AllInputs();
  std::vector<int> ranks;
  for (const Symbol& operand : operands) ranks.push_back(im.RankOf(operand));
  im.Out(Einsum(im.String("equation", ""), operands, ranks, im.name()));
}

}  // namespace

std::span<const ImportRow> SequenceImports() {
  static const std::vector<ImportRow> rows = {
      {"Einsum", 12, ImportEinsum},
      {"GRU", 7, ImportGRU},
      {"LSTM", 7, ImportLSTM},
      {"RNN", 7, ImportRNN},
  };
  return rows;
}

}  // namespace bindery::onnx
