// Branches and loops. How often a loop is run is known while the file is read: each step becomes nodes of its own.
#include <algorithm>
#include <string>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

using Values = std::vector<ValuePtr>;

ValuePtr ValueOf(HostTensor constant) {
  return std::make_shared<Value>(Value{.constant = std::make_shared<const HostTensor>(std::move(constant))});
}
ValuePtr ValueOf(const Symbol& symbol) { return std::make_shared<Value>(Value{.symbol = symbol}); }

bool Truth(const HostTensor& condition, const char* what) {
  if (condition.elements() != 1) Throw<ModelError>("{}: expected one truth value, got {}", what, condition.shape());
  return condition.At(0) != 0;
}

// What the steps gave, along a new axis.
Symbol Stacked(Importer& im, const std::vector<Symbol>& steps, int64_t axis) {
  if (steps.empty()) Throw<ModelError>("it has no steps, so the shape of what they give is not known");
  std::vector<Symbol> parts;
  for (const Symbol& step : steps) parts.push_back(Unsqueezed(im, step, {axis}));
  return parts.size() == 1 ? parts[0] : Concat(parts, {.axis = axis});
}

// --- If: where its condition is computed both branches are, and their outputs are chosen from.
void ImportIf(Importer& im) {
  const auto yes = im.OpenBody("then_branch"), no = im.OpenBody("else_branch");
  if (const HostTensor* condition = im.Constant(0)) {
    const bool truth = Truth(*condition, "input 0");
    const Values outputs = im.Run(truth ? *yes : *no, {}, truth ? "then_branch" : "else_branch", "");
    for (size_t i = 0; i < outputs.size(); ++i) im.OutValue(static_cast<int>(i), outputs[i]);
    return;
  }
  const Symbol condition = Reshape(im.In(0), {.shape = {}});
  const Values a = im.Run(*yes, {}, "then_branch", "_then"), b = im.Run(*no, {}, "else_branch", "_else");
  if (a.size() != b.size()) Throw<ModelError>("its branches have {} and {} outputs", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const Symbol x = im.SymbolOf(*a[i]), y = im.SymbolOf(*b[i]);
    if (im.ExtentsOf(x) != im.ExtentsOf(y)) {
      Throw<ModelError>("its condition is computed, and its branches give other shapes for output {}: {} and {}", i,
                        im.ShapeOf(x), im.ShapeOf(y));
    }
    im.Out(static_cast<int>(i), Where(condition, x, y, i == 0 ? im.name() : ""));
  }
}

// What a loop asks for before its steps can be made.
void CheckIsKnown(const Importer& im, const HostTensor* constant, const std::string& what) {
  if (constant != nullptr) return;
  Throw<ModelError>(
      "{} is computed from data or the batch, but how many steps a loop has must be known while the file is read{}",
      what, im.HowToState());
}

// --- Loop: (trips, condition, carried...) -> (carried..., what each step gave...).
void ImportLoop(Importer& im) {
  const auto body = im.OpenBody("body");
  if (im.Has(0)) CheckIsKnown(im, im.Constant(0), "input 0, the number of its steps,");
  if (im.Has(1)) CheckIsKnown(im, im.Constant(1), "input 1, the condition of its first step,");
  const int64_t trips = im.Has(0) ? im.StaticNumber(0) : INT64_MAX;
  bool goes_on = !im.Has(1) || Truth(im.Static(1), "input 1");
  Values carried;
  for (int i = 2; i < im.num_inputs(); ++i) carried.push_back(im.ValueOf(i));
  const auto given = static_cast<size_t>(body->graph->output_size());
  if (given < 1 + carried.size()) {
    Throw<ModelError>("attribute \"body\": its graph has {} outputs, expected a condition and {} or more", given,
                      carried.size());
  }
  std::vector<std::vector<Symbol>> scanned(given - 1 - carried.size());
  const auto place = [&](size_t i) { return static_cast<int>(carried.size() + i); };  // among the outputs
  for (int64_t step = 0; step < trips && goes_on; ++step) {
    Values inputs = {ValueOf(HostTensor::Full(DType::kInt64, {}, static_cast<double>(step))),
                     ValueOf(HostTensor::Full(DType::kBool, {}, 1))};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    const Values outputs = im.Run(*body, inputs, fmt::format("step {}", step), fmt::format("_{}", step));
    CheckIsKnown(im, outputs[0]->constant.get(), fmt::format("the condition to go on after step {}", step));
    goes_on = Truth(*outputs[0]->constant, "its condition");
    std::copy_n(outputs.begin() + 1, carried.size(), carried.begin());
    for (size_t i = 0; i < scanned.size(); ++i) {
      if (im.IsRead(place(i))) scanned[i].push_back(im.SymbolOf(*outputs[1 + carried.size() + i]));
    }
  }
  for (size_t i = 0; i < carried.size(); ++i) im.OutValue(static_cast<int>(i), carried[i]);
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (im.IsRead(place(i))) im.Out(place(i), Stacked(im, scanned[i], 0));
  }
}

// --- Scan: (states..., sequences...) -> (states..., what each step gave...).
struct ScanAxes {
  std::vector<int64_t> in, out;
  std::vector<int64_t> in_backward, out_backward;  // 1: from the last to the first
  static int64_t At(const std::vector<int64_t>& list, size_t i) { return i < list.size() ? list[i] : 0; }
};

// `values`: states, which become the last ones, and behind them the sequences; returns what the steps gave.
std::vector<Symbol> RunScan(Importer& im, const Body& body, const ScanAxes& axes, size_t sequences, Values* values,
                            const std::string& suffix) {
  const size_t states = values->size() - sequences;
  int64_t length = -1;
  std::vector<Symbol> parts;
  for (size_t i = 0; i < sequences; ++i) {
    const Symbol x = im.SymbolOf(*(*values)[states + i]);
    const int axis = im.AxisOf(x, ScanAxes::At(axes.in, i));
    const int64_t extent = im.ShapeOf(x)[axis];
    if (extent < 1 || (i > 0 && extent != length)) {
      Throw<ModelError>("expected sequences of one known length, got {} along axis {}", im.ShapeOf(x), axis);
    }
    im.Charge(extent);  // before so many parts are made
    length = extent;
    parts.push_back(SliceChannel(x, {.num_outputs = length, .axis = axis, .squeeze_axis = true}));
  }
  values->resize(states);
  const size_t outputs = static_cast<size_t>(body.graph->output_size());
  if (outputs < states)
    Throw<ModelError>("attribute \"body\": its graph has {} outputs for {} states", outputs, states);
  std::vector<std::vector<Symbol>> scanned(outputs - states);
  for (int64_t step = 0; step < length; ++step) {
    Values inputs = *values;
    for (size_t i = 0; i < sequences; ++i) {
      const bool backward = ScanAxes::At(axes.in_backward, i) != 0;
      inputs.push_back(ValueOf(parts[i][static_cast<int>(backward ? length - 1 - step : step)]));
    }
    const Values given = im.Run(body, inputs, fmt::format("step {}", step), fmt::format("{}_{}", suffix, step));
    std::copy_n(given.begin(), states, values->begin());
    for (size_t i = 0; i < scanned.size(); ++i) scanned[i].push_back(im.SymbolOf(*given[states + i]));
  }
  std::vector<Symbol> stacked;
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (ScanAxes::At(axes.out_backward, i) != 0) std::ranges::reverse(scanned[i]);
    stacked.push_back(Stacked(im, scanned[i], ScanAxes::At(axes.out, i)));
  }
  return stacked;
}

size_t SequencesOf(Importer& im, int first) {
  const int64_t count = im.Int("num_scan_inputs", 0), inputs = im.num_inputs() - first;
  if (count < 1 || count > inputs) Throw<ModelError>("attribute \"num_scan_inputs\": {} of {} inputs", count, inputs);
  return static_cast<size_t>(count);
}

void ImportScan(Importer& im) {
  const auto body = im.OpenBody("body");
  const size_t sequences = SequencesOf(im, 0);
  const ScanAxes axes{.in = im.Ints("scan_input_axes"),
                      .out = im.Ints("scan_output_axes"),
                      .in_backward = im.Ints("scan_input_directions"),
                      .out_backward = im.Ints("scan_output_directions")};
  Values values;
  for (int i = 0; i < im.num_inputs(); ++i) values.push_back(im.ValueOf(i));
  const std::vector<Symbol> stacked = RunScan(im, *body, axes, sequences, &values, "");
  int next = 0;
  for (const ValuePtr& state : values) im.OutValue(next++, state);
  for (const Symbol& output : stacked) im.Out(next++, output);
}

// The first version's inputs and outputs have the samples in front, each of which it is run for.
void ImportScanOfSamples(Importer& im) {
  const auto body = im.OpenBody("body");
  const size_t sequences = SequencesOf(im, 1);
  const ScanAxes axes{.in = {}, .out = {}, .in_backward = im.Ints("directions"), .out_backward = {}};
  if (im.Has(0)) Throw<ModelError>("input 0: sequences of several lengths cannot be had");
  const int64_t samples = im.ShapeOf(im.In(1))[im.AxisOf(im.In(1), 0)];
  if (samples < 1) {
    Throw<ModelError>("input 1: how many samples there are must be known, got {}", im.ShapeOf(im.In(1)));
  }
  std::vector<Symbol> inputs;
  for (int i = 1; i < im.num_inputs(); ++i) {
    im.Charge(samples);
    inputs.push_back(SliceChannel(im.In(i), {.num_outputs = samples, .axis = 0, .squeeze_axis = true}));
  }
  std::vector<std::vector<Symbol>> outputs(static_cast<size_t>(body->graph->output_size()));
  for (int64_t sample = 0; sample < samples; ++sample) {
    Values values;
    for (const Symbol& input : inputs) values.push_back(ValueOf(input[static_cast<int>(sample)]));
    const std::vector<Symbol> stacked = RunScan(im, *body, axes, sequences, &values, fmt::format("_of_{}", sample));
    size_t next = 0;
    for (const ValuePtr& state : values) outputs[next++].push_back(im.SymbolOf(*state));
    for (const Symbol& output : stacked) outputs[next++].push_back(output);
  }
  for (size_t i = 0; i < outputs.size(); ++i) im.Out(static_cast<int>(i), Stacked(im, outputs[i], 0));
}

}  // namespace

std::span<const ImportRow> ControlImports() {
  static const std::vector<ImportRow> rows = {
      {"If", 1, ImportIf},
      {"Loop", 1, ImportLoop},
      {"Scan", 8, ImportScanOfSamples},
      {"Scan", 9, ImportScan},
  };
  return rows;
}

}  // namespace bindery::onnx
