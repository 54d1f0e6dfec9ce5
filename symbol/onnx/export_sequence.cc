// Recurrent layers, sequences of several lengths, and products along an axis.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// The parts of a value along axis 0 in ONNX' order of gates: ours of index order[0], then order[1] ...
std::string Reordered(Exporter& ex, const std::string& value, const std::vector<int>& order) {
  if (order.empty()) return value;
  const Exporter::Names parts = ex.AddAll("Split", {value}, static_cast<int>(order.size()));
  ex.Set("axis", int64_t{0});
  Exporter::Names sorted;
  for (const int part : order) sorted.push_back(parts[static_cast<size_t>(part)]);
  const std::string joined = ex.Add("Concat", sorted);
  ex.Set("axis", int64_t{0});
  return joined;
}

// ONNX has the projection of the data within the layer. Ours is a FullyConnected before it; where something else is, an
// identity.
struct Projection {
  std::string data, weight, bias;  // "": no bias
};

Projection ProjectionOf(Exporter& ex, int64_t width) {
  const Entry& data = ex.node().inputs()[0];
  const bool is_layer = !data.node->is_variable() && &data.node->op() == &FullyConnectedOp();
  if (is_layer) {
    const auto& attrs = data.node->attrs().get<FullyConnectedAttrs>();
    const std::vector<Entry>& inputs = data.node->inputs();
    if (!attrs.flatten && attrs.activation == ActivationType::kNone) {
      return {ex.NameOf(inputs[0]), ex.NameOf(inputs[1]), attrs.no_bias ? "" : ex.NameOf(inputs[2])};
    }
  }
  HostTensor identity(ex.DTypeOfInput(1), {width, width});
  for (int64_t i = 0; i < width; ++i) identity.Set(i * width + i, 1);
  return {ex.In(0), ex.Constant(identity, "identity"), ""};
}

void ExportRecurrent(Exporter& ex) {
  const auto& attrs = ex.attrs<RecurrentAttrs>();
  const bool is_lstm = attrs.cell == RecurrentCell::kLstm, is_gru = attrs.cell == RecurrentCell::kGru;
  const int64_t gates = is_lstm ? 4 : is_gru ? 3 : 1, width = gates * attrs.hidden;
  const DType dtype = ex.DTypeOfInput(1);
  std::vector<int> order, peephole_order;  // ours, i f g o and r z n, in ONNX' places, i o f g and z r n
  if (attrs.order == GateOrder::kCommon && is_lstm) order = {0, 3, 1, 2}, peephole_order = {0, 2, 1};
  if (attrs.order == GateOrder::kCommon && is_gru) order = {1, 0, 2};
  const auto with_axis = [&](const std::string& value) { return ex.Add("Unsqueeze", {value, ex.Ints({0}, "axes")}); };
  const auto zeros = [&](int64_t count) { return ex.Constant(HostTensor(dtype, {count}), "zeros"); };
  const auto swapped = [&](const std::string& value) {
    const std::string steps_first = ex.Add("Transpose", {value});
    ex.Set("perm", std::vector<int64_t>{1, 0, 2});
    return steps_first;
  };

  const Projection projection = ProjectionOf(ex, width);
  int next = 2;  // of the node's inputs
  std::string bias = projection.bias.empty() ? zeros(width) : Reordered(ex, projection.bias, order);
  std::string own_bias = zeros(width);
  if (is_gru && attrs.reset_after) own_bias = ex.Add("Concat", {zeros(width - attrs.hidden), ex.In(next++)});
  if (is_gru && attrs.reset_after) ex.Set("axis", int64_t{0});
  bias = ex.Add("Concat", {bias, own_bias});
  ex.Set("axis", int64_t{0});
  Exporter::Names inputs = {attrs.layout == SequenceLayout::kNtc ? swapped(projection.data) : projection.data,
                            with_axis(Reordered(ex, projection.weight, order)),
                            with_axis(Reordered(ex, ex.In(1), order)),
                            with_axis(bias),
                            "",
                            "",
                            "",
                            ""};
  if (attrs.peepholes) inputs[7] = with_axis(Reordered(ex, ex.In(next++), peephole_order));
  if (attrs.initial) inputs[5] = with_axis(ex.In(next++));
  if (attrs.initial && is_lstm) inputs[6] = with_axis(ex.In(next++));
  if (attrs.lengths) inputs[4] = ex.In(next, DType::kInt32);

  const Exporter::Names outputs = ex.AddAll(is_lstm ? "LSTM" : is_gru ? "GRU" : "RNN", inputs, is_lstm ? 3 : 2);
  ex.Set("hidden_size", attrs.hidden);
  ex.Set("direction", attrs.reverse ? "reverse" : "forward");
  if (attrs.clip > 0) ex.Set("clip", attrs.clip);
  if (attrs.coupled) ex.Set("input_forget", int64_t{1});
  if (is_gru) ex.Set("linear_before_reset", int64_t{attrs.reset_after});
  if (attrs.cell == RecurrentCell::kRelu) ex.Set("activations", std::vector<std::string>{"Relu"});
  const std::string steps = ex.Add("Squeeze", {outputs[0], ex.Ints({1}, "axes")});
  ex.AliasOutput(0, attrs.layout == SequenceLayout::kNtc ? swapped(steps) : steps);
  for (size_t i = 1; i < outputs.size(); ++i) {
    ex.AliasOutput(static_cast<int>(i), ex.Add("Squeeze", {outputs[i], ex.Ints({0}, "axes")}));
  }
}

// --- Sequences of several lengths.

// The lengths, (N) and along the axis of the samples, the numbers of the steps along theirs, and how many there are,
// (1); all are int64.
struct Steps {
  SequenceAxes axes;
  std::string lengths, wide_lengths, numbers, count;

  Steps(Exporter& ex, const SequenceAttrs& attrs) {
    const int rank = ex.RankOfInput(0);
    axes = AxesOf(attrs, *ex.ShapeOfInput(0));
    const auto others = [&](int axis) {
      std::vector<int64_t> axes;
      for (int i = 0; i < rank; ++i) {
        if (i != axis) axes.push_back(i);
      }
      return ex.Ints(axes, "axes");
    };
    count = ex.Add("Gather", {ex.Add("Shape", {ex.In(0)}), ex.Ints({axes.steps}, "axis")});
    const std::string steps =
        ex.Add("Range", {ex.Number(0, DType::kInt64), ex.Add("Squeeze", {count}), ex.Number(1, DType::kInt64)});
    numbers = ex.Add("Unsqueeze", {steps, others(axes.steps)});
    lengths = ex.In(1, DType::kInt64);
    wide_lengths = ex.Add("Unsqueeze", {lengths, others(axes.samples)});
  }
};

void ExportSequenceMask(Exporter& ex) {
  const auto& attrs = ex.attrs<SequenceMaskAttrs>();
  const Steps steps(ex, attrs);
  const std::string value = ex.Number(attrs.value, ex.DTypeOfInput(0));
  ex.Out("Where", {ex.Add("Less", {steps.numbers, steps.wide_lengths}), ex.In(0), value});
}

// Samples and steps are the first two axes of what GatherND reads; the axes that stay go back to their places.
void ExportSequenceLast(Exporter& ex) {
  const Steps steps(ex, ex.attrs<SequenceAttrs>());
  const std::string one = ex.Number(1, DType::kInt64);
  const std::string within = ex.Add("Clip", {steps.lengths, one, ex.Add("Squeeze", {steps.count})});
  const std::string last = ex.Add("Unsqueeze", {ex.Add("Sub", {within, one}), ex.Ints({-1}, "axes")});
  std::vector<int64_t> order = {steps.axes.samples, steps.axes.steps}, back;
  for (int i = 0; i < ex.RankOfInput(0); ++i) {
    if (i != steps.axes.samples && i != steps.axes.steps) order.push_back(i);
  }
  for (int i = 0; i < ex.RankOfInput(0); ++i) {
    const int64_t at = std::ranges::find(order, i) - order.begin();
    if (i != steps.axes.steps) back.push_back(at == 0 ? 0 : at - 1);
  }
  const std::string ordered = ex.Add("Transpose", {ex.In(0)});
  ex.Set("perm", order);
  const std::string gathered = ex.Add("GatherND", {ordered, last});
  ex.Set("batch_dims", int64_t{1});
  ex.Out("Transpose", {gathered});
  ex.Set("perm", back);
}

// --- Products along an axis: a Scan whose state is the product so far.

void AddValue(ValueInfoProto* info, const std::string& name, DType dtype) {
  info->set_name(name);
  info->mutable_type()->mutable_tensor_type()->set_elem_type(NumberOf(dtype));
}

void ExportCumProd(Exporter& ex) {
  const auto& attrs = ex.attrs<ScanAttrs>();
  const DType dtype = ex.DTypeOfInput(0);
  const std::string sums = ex.Add("ReduceSum", {ex.In(0), ex.Ints({attrs.axis}, "axis")});  // for their shape
  ex.Set("keepdims", int64_t{0});
  const std::string ones = ex.Add("Expand", {ex.Number(1, dtype), ex.Add("Shape", {sums})});

  GraphProto body;
  body.set_name(ex.NewName("body"));
  const std::string before = ex.NewName("before"), x = ex.NewName("x"), product = ex.NewName("product"),
                    output = ex.NewName("output");
  AddValue(body.add_input(), before, dtype);
  AddValue(body.add_input(), x, dtype);
  const auto add = [&](const char* op, std::initializer_list<std::string> inputs, const std::string& result) {
    NodeProto* node = body.add_node();
    node->set_op_type(op);
    node->set_name(result);
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(result);
    AddValue(body.add_output(), result, dtype);
  };
  add("Mul", {before, x}, product);
  add("Identity", {attrs.exclusive ? before : product}, output);

  const std::vector<int64_t> axis = {attrs.axis}, direction = {attrs.reverse ? 1 : 0};
  ex.AliasOutput(0, ex.AddAll("Scan", {ones, ex.In(0)}, 2)[1]);
  ex.Set("body", body);
  ex.Set("num_scan_inputs", int64_t{1});
  ex.Set("scan_input_axes", axis);
  ex.Set("scan_output_axes", axis);
  ex.Set("scan_input_directions", direction);
  ex.Set("scan_output_directions", direction);
}

}  // namespace

std::span<const ExportRow> SequenceExports() {
  static constexpr ExportRow kRows[] = {{"CumProd", ExportCumProd},
                                        {"Recurrent", ExportRecurrent},
                                        {"SequenceLast", ExportSequenceLast},
                                        {"SequenceMask", ExportSequenceMask}};
  return kRows;
}

}  // namespace bindery::onnx
