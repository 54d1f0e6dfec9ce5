// RNN: layers of recurrent cells whose parameters are one vector. First all weights, layer by layer and direction by
// direction, of the data and of the state, then all biases in the same order.
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

constexpr int64_t kMaxLayers = 100;

struct Form {
  RecurrentCell cell = RecurrentCell::kLstm;
  int64_t gates = 4, hidden = 0, layers = 1, directions = 1;
  int64_t Rows() const { return CheckedMul(gates, hidden); }
};

Form FormOf(Importer& im) {
  im.Expect("mode", {"rnn_relu", "rnn_tanh", "lstm", "gru"});
  const std::string mode = im.String("mode", "");
  Form form{
      .hidden = im.Int("state_size"), .layers = im.Int("num_layers"), .directions = im.Flag("bidirectional") ? 2 : 1};
  if (mode.empty()) Throw<ModelError>("attribute \"mode\" is missing");
  if (mode != "lstm") {
    form.cell = mode == "gru" ? RecurrentCell::kGru : mode == "rnn_relu" ? RecurrentCell::kRelu : RecurrentCell::kTanh;
    form.gates = mode == "gru" ? 3 : 1;
  }
  if (form.hidden < 1 || form.hidden > INT32_MAX) Throw<ModelError>("attribute \"state_size\": got {}", form.hidden);
  if (form.layers < 1 || form.layers > kMaxLayers) {
    Throw<ModelError>("attribute \"num_layers\": expected 1 to {}, got {}", kMaxLayers, form.layers);
  }
  for (const char* refused : {"projection_size", "lstm_state_clip_min", "lstm_state_clip_max"}) im.Expect(refused, {});
  im.Ignore({"lstm_state_clip_nan"});
  return form;
}

// Parts of the vector, in its order. `inputs`: the data's last extent; kUnknownDim where nothing tells it.
std::vector<Piece> PiecesOf(const Form& form, const std::string& prefix, int64_t inputs) {
  std::vector<Piece> weights, biases;
  for (int64_t layer = 0; layer < form.layers; ++layer) {
    for (int64_t d = 0; d < form.directions; ++d) {
      const std::string name = fmt::format("{}{}{}_", prefix, d == 0 ? "l" : "r", layer);
      const int64_t own = layer == 0 ? inputs : CheckedMul(form.directions, form.hidden);
      weights.push_back({name + "i2h_weight", {form.Rows(), own}});
      weights.push_back({name + "h2h_weight", {form.Rows(), form.hidden}});
      biases.push_back({name + "i2h_bias", {form.Rows()}});
      biases.push_back({name + "h2h_bias", {form.Rows()}});
    }
  }
  weights.insert(weights.end(), biases.begin(), biases.end());
  return weights;
}

// How wide the data are, from how long the vector is.
int64_t InputsOf(const Form& form, const HostTensor& vector) {
  int64_t rest = vector.elements();
  for (const Piece& piece : PiecesOf(form, "", 0)) {
    const int64_t elements = piece.shape.Elements();
    rest = rest < elements ? 0 : rest - elements;
  }
  const int64_t row = CheckedMul(form.Rows(), form.directions);
  if (rest <= 0 || rest % row != 0) {
    Throw<ModelError>("its parameters are {} numbers, which no width of the data gives", vector.elements());
  }
  return rest / row;
}

// The parameters, in the order of PiecesOf. Gluon joins them by a node of their own, each as a vector.
std::vector<Symbol> Parameters(Importer& im, const Form& form) {
  const Symbol vector = im.In(1);
  const Node& node = *vector.entry().node;
  const size_t count = static_cast<size_t>(4 * form.layers * form.directions);
  if (node.is_variable()) {
    std::string prefix = vector.name();
    constexpr std::string_view kEnding = "parameters";
    if (prefix.ends_with(kEnding)) prefix.erase(prefix.size() - kEnding.size());
    if (prefix == vector.name()) prefix += "_";
    const HostTensor* value = im.ValueOf(vector.name());
    const int64_t inputs = value == nullptr ? kUnknownDim : InputsOf(form, *value);
    return im.Split(vector, PiecesOf(form, prefix, inputs));
  }
  std::vector<Symbol> parameters;
  if (&node.op() == &ConcatOp() && node.inputs().size() == count) {
    for (const Entry& part : node.inputs()) {
      const Node& reshape = *part.node;
      if (reshape.is_variable() || &reshape.op() != &ReshapeOp()) break;
      parameters.emplace_back(reshape.inputs()[0]);
    }
  }
  if (parameters.size() != count) {
    Throw<ModelError>("its parameters are computed, and can be imported as a variable or as {} joined ones", count);
  }
  return parameters;
}

// One layer in one direction: data W^T and both biases, of which a GRU's last gate adds the state's behind its reset.
Symbol Layer(const Form& form, const Symbol& x, std::span<const Symbol> weights, std::span<const Symbol> biases,
             const Symbol& state, const Symbol& cell, const Symbol& lengths, bool reverse, const std::string& name) {
  const bool is_gru = form.cell == RecurrentCell::kGru;
  const Symbol projected =
      FullyConnected(x, weights[0], biases[0], {.num_hidden = form.Rows(), .flatten = false}, name + "_i2h");
  std::vector<Symbol> inputs = {Symbol(), weights[1]};
  if (is_gru) {
    const Symbol own = Slice(biases[1], {.begin = {2 * form.hidden}, .end = {3 * form.hidden}});
    const Symbol shared = Slice(biases[1], {.begin = {0}, .end = {2 * form.hidden}});
    inputs[0] = projected + Concat({shared, FullLike(own, {0})}, {.axis = 0});
    inputs.push_back(own);
  } else {
    inputs[0] = projected + biases[1];
  }
  inputs.push_back(state);
  if (form.cell == RecurrentCell::kLstm) inputs.push_back(cell);
  if (!lengths.empty()) inputs.push_back(lengths);
  return Recurrent(
      inputs,
      {.cell = form.cell, .hidden = form.hidden, .reverse = reverse, .initial = true, .lengths = !lengths.empty()},
      name);
}

// data (T, N, C), parameters, state (L D, N, H), of an LSTM state_cell, sequence_length (N) if it is used -> output
// (T, N, D H) and, with state_outputs, the last states in the form of the first.
void ImportRNN(Importer& im) {
  const Form form = FormOf(im);
  const double dropout = im.Float("p", 0);
  const int64_t count = form.layers * form.directions;
  im.Spend(30 * count);
  const bool is_lstm = form.cell == RecurrentCell::kLstm;
  const std::vector<Symbol> parameters = Parameters(im, form);
  const auto each = [&](int input) {
    return SliceChannel(im.In(input), {.num_outputs = count, .axis = 0, .squeeze_axis = true});
  };
  const Symbol states = each(2), cells = is_lstm ? each(3) : Symbol();
  const Symbol lengths = im.Flag("use_sequence_length") ? im.In(is_lstm ? 4 : 3) : Symbol();
  Symbol x = im.In(0);
  std::vector<Symbol> last_states, last_cells;
  for (int64_t layer = 0; layer < form.layers; ++layer) {
    if (layer > 0 && dropout > 0) x = Dropout(x, {.p = dropout});
    std::vector<Symbol> outputs;
    for (int64_t d = 0; d < form.directions; ++d) {
      const int64_t i = layer * form.directions + d;
      const std::string name = fmt::format("{}_{}{}", im.name(), d == 0 ? "l" : "r", layer);
      const auto at = static_cast<size_t>(2 * i);
      const Symbol y =
          Layer(form, x, std::span(parameters).subspan(at, 2),
                std::span(parameters).subspan(at + static_cast<size_t>(2 * count), 2), states[static_cast<int>(i)],
                is_lstm ? cells[static_cast<int>(i)] : Symbol(), lengths, d == 1, name);
      outputs.push_back(y[0]);
      last_states.push_back(y[1]);
      if (is_lstm) last_cells.push_back(y[2]);
    }
    const bool is_last = layer + 1 == form.layers;
    x = outputs.size() == 1 ? outputs[0] : Concat(outputs, {.axis = 2}, is_last ? im.name() : "");
  }
  if (form.directions == 1) x = Identity(x, im.name());
  std::vector<Symbol> all = {x};
  if (im.Flag("state_outputs")) {
    all.push_back(Stack(last_states, 0, im.name() + "_state"));
    if (is_lstm) all.push_back(Stack(last_cells, 0, im.name() + "_state_cell"));
  }
  im.Out(all);
}

void ImportParameters(Importer& im) {
  im.Ignore({"num_args"});
  im.Out(Concat(im.AllInputs(), {.axis = im.Int("dim", 0)}, im.name()));
}

}  // namespace

std::span<const ImportRow> RecurrentImports() {
  static const std::vector<ImportRow> rows = {
      {"RNN", ImportRNN},
      {"_rnn_param_concat", ImportParameters},
  };
  return rows;
}

}  // namespace bindery::mxnet
