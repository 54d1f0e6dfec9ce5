// Models of sequences of class numbers: at each place the next one's probabilities.
#include <cmath>

#include "symbol/ops.h"
#include "train/zoo/models.h"

namespace bindery::zoo {
namespace {

Symbol Linear(const Symbol& x, int64_t width, const std::string& name) {
  return FullyConnected(x, {.num_hidden = width, .flatten = false}, name);
}

// A row of weights for each class number of x.
Symbol Embed(const Symbol& x, const Symbol& weight, const ZooOptions& o, const std::string& name) {
  return Embedding(x, weight, {.input_dim = o.num_classes, .output_dim = o.width}, name);
}

// x and a learned vector for each place.
Symbol AddPositions(const Symbol& x, const ZooOptions& o, const std::string& name) {
  return Add(x, Variable(name + "_weight", {.shape = Shape{o.input[0], o.width}}), name);
}

// Probabilities over the last axis; the gradient is that of the mean over the places.
Symbol Loss(const Symbol& scores, const Symbol& label, const ZooOptions& o) {
  return SoftmaxOutput(scores, label, {.grad_scale = 1 / static_cast<double>(o.input[0]), .preserve_shape = true},
                       "softmax");
}

// A class's scores; the weights may be the embedding's.
Symbol Head(const Symbol& x, const Symbol& embedding, bool bias, const ZooOptions& o) {
  return FullyConnected(x, o.tied ? embedding : Symbol(), {},
                        {.num_hidden = o.num_classes, .no_bias = !bias, .flatten = false}, "head");
}

}  // namespace

// Radford et al., "Language models are unsupervised multitask learners" (2019), with dropout of what is embedded and of
// what attention and the inner layers give. Weights are N(0, 0.02), of what is added to the residual divided by
// sqrt(2 layers).
Symbol Gpt(const ZooOptions& o) {
  const Symbol tokens = Variable("tokens_weight");
  Symbol x = AddPositions(Embed(Input(o), tokens, o, "tokens"), o, "positions");  // (N, T, width)
  x = MaybeDropout(x, o, "dropout");
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string block = fmt::format("block{}_", i);
    Symbol y = LayerNorm(x, {}, block + "norm1");
    y = MultiHeadAttention(y, y, y, {}, {.width = o.width, .heads = o.heads, .causal = true}, block + "attention");
    x = Add(x, MaybeDropout(y, o, block + "dropout1"), block + "sum1");
    y = LayerNorm(x, {}, block + "norm2");
    y = Linear(Gelu(Linear(y, 4 * o.width, block + "fc1"), block + "gelu"), o.width, block + "fc2");
    x = Add(x, MaybeDropout(y, o, block + "dropout2"), block + "sum2");
  }
  const Symbol scores = Head(LayerNorm(x, {}, "norm"), tokens, /*bias=*/false, o);
  const std::string residual = fmt::format("normal({})", 0.02 / std::sqrt(2.0 * static_cast<double>(o.layers)));
  return WithInitial(Loss(scores, {}, o),
                     {{"_output_weight", residual}, {"_fc2_weight", residual}, {"_weight", "normal(0.02)"}});
}

// Zaremba, Sutskever, Vinyals, "Recurrent neural network regularization" (2014): dropout of what goes up, not of what
// goes on in time. Initial values are PyTorch's, U(+-1 / sqrt(width)).
Symbol Lstm(const ZooOptions& o) {
  const Symbol tokens = Variable("tokens_weight");
  const std::string layout = o.time_first ? "TN" : "NT";
  const Symbol data = Variable(
      "data", {.shape = o.input.Insert(o.time_first ? 1 : 0, kUnknownDim), .layout = o.time_first ? layout : ""});
  const Symbol label = Variable("softmax_label", {.layout = o.time_first ? layout : ""});
  Symbol x = MaybeDropout(Embed(data, tokens, o, "tokens"), o, "dropout");
  x = Rnn(x,
          {.cell = RecurrentCell::kLstm,
           .hidden = o.width,
           .layers = o.layers,
           .dropout = o.dropout,
           .layout = o.time_first ? SequenceLayout::kTnc : SequenceLayout::kNtc},
          "lstm")
          .output;
  const Symbol scores = Head(MaybeDropout(x, o, "dropout1"), tokens, /*bias=*/true, o);
  const std::string uniform = fmt::format("uniform({})", 1 / std::sqrt(static_cast<double>(o.width)));
  return WithInitial(Loss(scores, label, o),
                     {{"tokens_weight", o.tied ? uniform : "normal(1)"}, {"_weight", uniform}, {"_bias", uniform}});
}

// Vaswani et al., "Attention is all you need" (2017). Matrices are Xavier's, embeddings N(0, 1 / width) and scaled by
// sqrt(width). As in PyTorch's, encoder and decoder each end in a norm.
Symbol Transformer(const ZooOptions& o) {
  const auto embed = [&](const Symbol& x, const Symbol& weight, const std::string& side) {
    const Symbol y =
        Mul(Embed(x, weight, o, side + "_tokens"), std::sqrt(static_cast<double>(o.width)), side + "_scaled");
    return MaybeDropout(AddPositions(y, o, side + "_positions"), o, side + "_dropout");
  };
  // The norm of x and what a part of a layer gives of it.
  const auto add_norm = [&](const Symbol& x, const Symbol& y, const std::string& layer, const std::string& number) {
    const Symbol sum = Add(x, MaybeDropout(y, o, layer + "dropout" + number), layer + "sum" + number);
    return LayerNorm(sum, {}, layer + "norm" + number);
  };
  const auto attend = [&](const Symbol& query, const Symbol& memory, bool causal, const std::string& name) {
    return MultiHeadAttention(query, memory, memory, {}, {.width = o.width, .heads = o.heads, .causal = causal}, name);
  };
  const auto inner = [&](const Symbol& x, const std::string& layer) {
    return Linear(Relu(Linear(x, 4 * o.width, layer + "fc1"), layer + "relu"), o.width, layer + "fc2");
  };
  const Symbol target = Variable("target", {.shape = o.input.Insert(0, kUnknownDim)});
  const Symbol source_tokens = Variable("source_tokens_weight"), target_tokens = Variable("target_tokens_weight");
  Symbol memory = embed(Input(o), source_tokens, "source");
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string layer = fmt::format("encoder{}_", i);
    memory = add_norm(memory, attend(memory, memory, false, layer + "attention"), layer, "1");
    memory = add_norm(memory, inner(memory, layer), layer, "2");
  }
  memory = LayerNorm(memory, {}, "encoder_norm");
  Symbol x = embed(target, target_tokens, "target");
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string layer = fmt::format("decoder{}_", i);
    x = add_norm(x, attend(x, x, true, layer + "attention"), layer, "1");
    x = add_norm(x, attend(x, memory, false, layer + "cross"), layer, "2");
    x = add_norm(x, inner(x, layer), layer, "3");
  }
  const Symbol scores = Head(LayerNorm(x, {}, "decoder_norm"), target_tokens, /*bias=*/true, o);
  const std::string embedded = fmt::format("normal({})", 1 / std::sqrt(static_cast<double>(o.width)));
  return WithInitial(
      Loss(scores, {}, o),
      {{"_tokens_weight", embedded}, {"_positions_weight", embedded}, {"_weight", "xavier(uniform, avg, 3)"}});
}

}  // namespace bindery::zoo
