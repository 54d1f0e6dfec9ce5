// What heads are, for those who bind them, train by them and measure them.
#pragma once

#include <optional>
#include <string>

#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {

enum class HeadKind {
  kNoLoss,   // or one that nothing is trained by
  kClasses,  // probabilities of classes, compared with a label
  kScores,   // of classes, no probabilities
  kTruths,   // each from 0 to 1
  kNumbers,  // compared with numbers
  kLoss,     // the loss itself
};
HeadKind HeadKindOf(const Node& head);

// Of a head of numbers: where these and their labels are measured in a unit, by which power of it the gradient grows.
// Nothing: of others.
std::optional<int> DegreeOfGradient(const Node& head);

// What y is the sigmoid of: a LogisticRegressionOutput is trained by that. Nothing: it is none.
std::optional<Entry> SigmoidOf(const Entry& y);

// How a head without batch axis is merged over devices: as it is annotated ("merge": see symbol/symbol.h), or as what
// it hands on is (MakeLoss, BlockGrad, casts), times a number, or added up. Empty: nobody says.
std::string MergeRuleOf(const Entry& head);

// Where a head, handed on like that, is a mean over the samples (Mean) of which the update makes a mean once more: that
// node. Null: it is not, or times a number above 1, which may be meant to make up for it.
const Node* MeanOverSamples(const Graph& graph, const NodeTypes& types, const Entry& head);

}  // namespace bindery
