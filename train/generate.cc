#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "executor/predictor.h"
#include "symbol/graph.h"
#include "train/data/text.h"

namespace bindery {
namespace {

Vocabulary VocabularyOf(const Model& model) {
  const auto found = model.metadata.find(kVocabularyKey);
  if (found == model.metadata.end()) {
    Throw<ModelError>("the model has no \"{}\" in its metadata: it was not trained on text", kVocabularyKey);
  }
  return Vocabulary(found->second);
}

// The input of one sample.
DataDesc InputOf(const Model& model) {
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    if (!node->is_variable() || node->name() != "data" || !node->declared_shape) continue;
    const auto layout = node->annotations().find("layout");
    DataDesc input{"data", *node->declared_shape, DType::kInt32,
                   layout == node->annotations().end() ? "" : layout->second};
    const int axis = input.BatchAxis();
    if (input.shape.rank() != 2 || axis < 0) break;
    input.shape.Set(axis, 1);
    if (input.shape.IsKnown()) return input;
  }
  throw ModelError("the model has no input \"data\" of windows of text, (N, characters)");
}

// Probabilities p^(1 / temperature), which need not add up to 1.
int64_t Draw(std::span<const float> probabilities, double temperature, PhiloxStream* random) {
  const auto largest = std::ranges::max_element(probabilities);
  if (temperature == 0) return largest - probabilities.begin();
  std::vector<double> up_to;
  double sum = 0;
  for (const float p : probabilities) up_to.push_back(sum += std::pow(p / *largest, 1 / temperature));
  const double wanted = random->Uniform() * sum;
  const int64_t drawn = std::ranges::upper_bound(up_to, wanted) - up_to.begin();
  return std::min(drawn, static_cast<int64_t>(up_to.size()) - 1);  // rounding may lead past the last
}

}  // namespace

std::string GenerateText(const Model& model, const GenerateOptions& options) {
  const Vocabulary vocabulary = VocabularyOf(model);
  std::vector<int32_t> text = vocabulary.Encode(options.prompt, "prompt");
  if (text.empty()) throw DataError("the prompt is empty: at least one character must come before the first");
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    Throw<DataError>("temperature: expected a number >= 0, got {}", options.temperature);
  }
  const DataDesc input = InputOf(model);
  const Predictor predictor(model, {.inputs = {input}, .calls = 1});
  PhiloxStream random(options.seed, "generate");
  const int64_t length = input.shape.Elements();
  std::string written;
  for (int64_t i = 0; i < options.characters; ++i) {
    const auto known = std::min(length, static_cast<int64_t>(text.size()));
    HostTensor window(DType::kInt32, input.shape);  // what is not known yet comes after what is asked for
    std::copy(text.end() - known, text.end(), window.data<int32_t>().begin());
    const HostTensor scores = predictor.Predict({{"data", window}})[0].Cast(DType::kFloat32);
    if (scores.elements() != length * vocabulary.size()) {
      Throw<ModelError>("output \"{}\" of shape {} has no probabilities of {} characters for each of {} places",
                        predictor.output_names()[0], scores.shape(), vocabulary.size(), length);
    }
    const auto row = scores.data<float>().subspan(static_cast<size_t>((known - 1) * vocabulary.size()),
                                                  static_cast<size_t>(vocabulary.size()));
    if (!std::ranges::all_of(row, [](float p) { return std::isfinite(p); })) {
      throw NumericError("a probability is not finite: the model has diverged");
    }
    text.push_back(static_cast<int32_t>(Draw(row, options.temperature, &random)));
    written += vocabulary.Decode(text.back());
  }
  return written;
}

}  // namespace bindery
