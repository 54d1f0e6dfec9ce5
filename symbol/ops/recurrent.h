// Recurrent layers: plain (Elman), LSTM (Hochreiter and Schmidhuber 1997, Gers et al. 2000) and GRU (Cho et al. 2014).
//
// Recurrent is one layer in one direction, without the projection of its data: that is a FullyConnected, one product for
// all steps. Rnn puts layers and directions together.
#pragma once

#include <array>
#include <vector>

#include "symbol/op_def.h"

namespace bindery {

enum class RecurrentCell { kRelu, kTanh, kLstm, kGru };
inline std::span<const EnumName> EnumNames(RecurrentCell*) {
  static constexpr std::array<EnumName, 4> names{{{0, "relu"}, {1, "tanh"}, {2, "lstm"}, {3, "gru"}}};
  return names;
}
enum class SequenceLayout { kTnc, kNtc };  // (T, N, C) or (N, T, C)
inline std::span<const EnumName> EnumNames(SequenceLayout*) {
  static constexpr std::array<EnumName, 2> names{{{0, "tnc"}, {1, "ntc"}}};
  return names;
}
// In which order weights have the gates: an LSTM's i, f, g, o and a GRU's r, z, n (PyTorch, cuDNN, MXNet), or ONNX' i,
// o, f, g and z, r, n. Peepholes are in the same order, without g.
enum class GateOrder { kCommon, kOnnx };
inline std::span<const EnumName> EnumNames(GateOrder*) {
  static constexpr std::array<EnumName, 2> names{{{0, "common"}, {1, "onnx"}}};
  return names;
}

struct RecurrentAttrs {
  RecurrentCell cell = RecurrentCell::kLstm;
  int64_t hidden = 0;
  SequenceLayout layout = SequenceLayout::kTnc;
  GateOrder order = GateOrder::kCommon;
  bool reverse = false, reset_after = true, peepholes = false, coupled = false;
  double clip = 0;
  bool initial = false, lengths = false;
  static FieldList Fields() {
    using A = RecurrentAttrs;
    return {{"cell", &A::cell, "relu, tanh, lstm, gru"},
            {"hidden", &A::hidden, "hidden units, required"},
            {"layout", &A::layout, "tnc or ntc"},
            {"order", &A::order, "of gates: common or onnx"},
            {"reverse", &A::reverse, "from the last step to the first"},
            {"reset_after", &A::reset_after, "of a GRU: r times the product, not the product of r times h"},
            {"peepholes", &A::peepholes, "of an LSTM: gates see the cell"},
            {"coupled", &A::coupled, "of an LSTM: f is 1 - i"},
            {"clip", &A::clip, "gates are cut to this before their functions; 0: they are not"},
            {"initial", &A::initial, "are initial states given? else they are 0"},
            {"lengths", &A::lengths, "are the lengths of sequences given?"}};
  }
};

// For data x_t of each gate and weights R, with h the state (H = hidden), * element by element:
//   relu, tanh: h' = f(x + R h)
//   lstm: i, f, o = sigmoid(x + R h + P * c), of which o sees c'; g = tanh(x + R h); c' = f * c + i * g; h' = o * tanh(c')
//   gru: r, z = sigmoid(x + R h); n = tanh(x + r * (R h + b)), or tanh(x + R (r * h)); h' = (1 - z) * n + z * h
// Inputs: data (T, N, G H) with G = 1, 4 or 3 gates, or (N, T, G H); weight (G H, H); then what there is of bias (H), of
// a GRU that resets after the product; peephole (3 H); initial_state and, of an LSTM, initial_cell (N, H); lengths (N),
// of any type: steps of a sample from its length on are not done, and their outputs are 0; a DataError, when run, for
// what is no whole number 0 .. T.
// Outputs: every step's state (T, N, H), the last state (N, H) and, of an LSTM, the last cell (N, H).
// A batch is along N. Of floating point numbers only.
Symbol Recurrent(const std::vector<Symbol>& inputs, const RecurrentAttrs& attrs, const std::string& name = {});

struct RnnAttrs {
  RecurrentCell cell = RecurrentCell::kLstm;
  int64_t hidden = 0, layers = 1;
  bool bidirectional = false;
  double dropout = 0;  // of what goes from layer to layer, in training
  SequenceLayout layout = SequenceLayout::kTnc;
};
struct RnnResult {
  Symbol output;               // (T, N, D H), with D directions one after the other
  std::vector<Symbol> states;  // (N, H) of each layer and direction, those of a layer together
  std::vector<Symbol> cells;   // of LSTMs
};
// Layers of (T, N, C). Weights are variables NAME_l0_input_weight, NAME_l0_input_bias, NAME_l0_weight and, of a GRU,
// NAME_l0_bias; backward ones have l0_reverse. `states` and `cells` are initial ones, as in the result, or empty;
// `lengths` may be empty. NAME must be given.
RnnResult Rnn(const Symbol& data, const RnnAttrs& attrs, const std::string& name,
              const std::vector<Symbol>& states = {}, const std::vector<Symbol>& cells = {},
              const Symbol& lengths = {});

// What kernels need.
struct RecurrentForm {
  int64_t steps, samples, hidden, gates, saved;  // `saved`: of how many gates' extent forward keeps numbers
  int64_t next_step, next_sample;                // in rows: row t next_step + n next_sample is of step t of sample n
  std::array<int64_t, 4> place;                  // where i, f, g, o or r, z, n are among the gates
  std::array<int64_t, 3> peephole;               // and i, f, o among the peepholes
};
RecurrentForm FormOf(const RecurrentAttrs& attrs, const Shape& data);

// Hidden outputs: the state before each step (T, N, H); of LSTM and GRU the gates (T, N, 4 H), of a GRU with r * h or
// the product that r is multiplied by in the fourth place; of an LSTM the cell before each step (T, N, H).
const OpDef& RecurrentOp();
// (dy, d last state [, d last cell], weight [, peephole] [, lengths], previous, saved [, previous_cell]) -> d data, d
// initial state [, d initial cell] [, d products of weights and states, where they are not d data]; `saved` of relu and
// tanh is the output.
const OpDef& RecurrentGradOp();

}  // namespace bindery
