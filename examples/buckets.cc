// Sequences of different lengths, each length with a network of its own: a language model that is unrolled to as many
// steps as a sentence has characters, so nothing is padded. All networks share parameters, optimizer and memory.
//
//   tools/bazel run //examples:buckets
//
// The text is built in: the numbers from 1 to 999 in words, of which every tenth is kept from training. Each epoch
// prints how many characters the model hesitates between (its perplexity) on those, and the end what it makes of a
// beginning.
//
// Expected: within three epochs, in seconds, the perplexity falls from about 3 to below 1.7, and stays there: which
// number comes is chance, how it goes on is known.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "symbol/ops.h"
#include "train/loop/bucketed_model.h"

using namespace bindery;

namespace {

constexpr int64_t kHidden = 64, kBatch = 20, kEpochs = 8;
const std::string kCharacters = ".abcdefghijklmnopqrstuvwxyz ";  // a sentence begins and ends with "."

std::string InWords(int number) {
  static const char* const kOnes[] = {"",         "one",     "two",     "three",     "four",     "five",    "six",
                                      "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
                                      "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static const char* const kTens[] = {"",      "",      "twenty",  "thirty", "forty",
                                      "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (number >= 100) {
    const std::string rest = number % 100 == 0 ? "" : " and " + InWords(number % 100);
    return std::string(kOnes[number / 100]) + " hundred" + rest;
  }
  if (number < 20) return kOnes[number];
  return std::string(kTens[number / 10]) + (number % 10 == 0 ? "" : std::string(" ") + kOnes[number % 10]);
}

// The network for sentences of so many characters: classes of characters (N, T) in, the next ones as labels.
BucketNet Unrolled(int64_t steps) {
  const auto classes = static_cast<int64_t>(kCharacters.size());
  const Symbol embedded = Embedding(Variable("data"), {.input_dim = classes, .output_dim = kHidden}, "embed");
  const Symbol x = SliceChannel(embedded, {.num_outputs = steps, .axis = 1, .squeeze_axis = true});
  const Symbol in = Variable("in_weight"), bias = Variable("in_bias"), back = Variable("back_weight");
  Symbol h, c;
  std::vector<Symbol> states;
  for (int t = 0; t < steps; ++t) {
    Symbol gates = FullyConnected(x[t], in, bias, {.num_hidden = 4 * kHidden});
    if (t > 0) gates = gates + FullyConnected(h, back, {}, {.num_hidden = 4 * kHidden, .no_bias = true});
    const Symbol gate = SliceChannel(gates, {.num_outputs = 4, .axis = 1});
    const Symbol fresh = Sigmoid(gate[0]) * Tanh(gate[2]);
    c = t > 0 ? Sigmoid(gate[1] + 1.0) * c + fresh : fresh;
    h = Sigmoid(gate[3]) * Tanh(c);
    states.push_back(h);
  }
  const Symbol scores =
      FullyConnected(Stack(states, 1), {.num_hidden = classes, .flatten = false}, "scores");  // (N, T, classes)
  return {.symbol =
              SoftmaxOutput(scores, {.grad_scale = 1 / static_cast<double>(steps), .preserve_shape = true}, "softmax"),
          .data = {{"data", {kBatch, steps}}},
          .labels = {{"softmax_label", {kBatch, steps}}}};
}

float ClassOf(char c) { return static_cast<float>(kCharacters.find(c)); }

// Sentences of one length, as a batch: each is ".words" with the label "words.".
BucketBatch BatchOf(const std::vector<std::string>& sentences) {
  const auto samples = static_cast<int64_t>(sentences.size()), steps = static_cast<int64_t>(sentences[0].size()) + 1;
  Batch batch{.data = {HostTensor(DType::kFloat32, {samples, steps})},
              .label = {HostTensor(DType::kFloat32, {samples, steps})},
              .samples = samples};
  for (int64_t n = 0; n < samples; ++n) {
    const std::string text = "." + sentences[static_cast<size_t>(n)] + ".";
    for (int64_t t = 0; t < steps; ++t) {
      batch.data[0].Set(n * steps + t, ClassOf(text[static_cast<size_t>(t)]));
      batch.label[0].Set(n * steps + t, ClassOf(text[static_cast<size_t>(t) + 1]));
    }
  }
  return {steps, std::make_shared<const Batch>(std::move(batch))};
}

// Batches of sentences of one length, in an order that the seed decides.
std::vector<BucketBatch> Batches(std::vector<std::string> sentences, uint64_t seed) {
  PhiloxStream random(seed, "order");
  for (size_t i = sentences.size(); i > 1; --i) std::swap(sentences[i - 1], sentences[random.Below(i)]);
  std::map<size_t, std::vector<std::string>> waiting;
  std::vector<BucketBatch> batches;
  for (const std::string& sentence : sentences) {
    std::vector<std::string>& same = waiting[sentence.size()];
    same.push_back(sentence);
    if (same.size() < kBatch) continue;
    batches.push_back(BatchOf(same));
    same.clear();
  }
  for (const auto& [length, rest] : waiting) {
    if (!rest.empty()) batches.push_back(BatchOf(rest));
  }
  return batches;
}

// Goes on with the likeliest character until the sentence ends.
std::string Complete(BucketedModel* model, std::string text, size_t longest) {
  while (text.size() < longest) {
    const BucketBatch asked = BatchOf({text});
    const HostTensor p = model->Predict(asked.key, asked.batch)[0];
    const auto classes = static_cast<int64_t>(kCharacters.size());
    int64_t best = 0;
    const int64_t last = (asked.key - 1) * classes;
    for (int64_t k = 1; k < classes; ++k) best = p.At(last + k) > p.At(last + best) ? k : best;
    if (best == 0) break;
    text += kCharacters[static_cast<size_t>(best)];
  }
  return text;
}

}  // namespace

int main() {
  std::vector<std::string> train, test;
  size_t longest = 0;
  for (int number = 1; number < 1000; ++number) {
    (number % 10 == 7 ? test : train).push_back(InWords(number));
    longest = std::max(longest, InWords(number).size());
  }
  BucketedModel model(Unrolled, static_cast<int64_t>(longest) + 1, {.devices = {Cpu(0), Cpu(1)}},
                      {.optimizer = "adam(lr=0.005, clip_norm=5)", .metrics = "perplexity(axis=2)"});
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (const BucketBatch& batch : Batches(train, static_cast<uint64_t>(epoch))) model.Step(batch);
    const std::vector<BucketBatch> kept = Batches(test, 0);
    auto next = kept.begin();
    const NamedValues scores =
        model.Score([&] { return next == kept.end() ? std::optional<BucketBatch>() : std::optional(*next++); });
    std::printf("epoch %d: perplexity %.3f\n", static_cast<int>(epoch) + 1, scores[0].second);
    std::fflush(stdout);
  }
  std::printf("%d networks, one set of parameters\n", static_cast<int>(model.keys().size()));
  for (const char* begin : {"six hundred and t", "nine"}) {
    std::printf("%s -> %s\n", begin, Complete(&model, begin, longest).c_str());
  }
}
