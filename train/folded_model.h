// A model with its batch-norms folded into the weights before them, as values. Private to train/.
#pragma once

#include <string>

#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/model.h"

namespace bindery {

// Of a graph whose parameters and states are this model's, and whose inputs have these shapes.
NodeTypes TypesOf(const Graph& graph, const Model& model, const ShapeMap& inputs);

// What FoldNorms (symbol/ops/fold_norms.h) makes of it, with weights and biases as parameters of the layers' names:
// CONV_weight, CONV_bias. Parameters that nobody reads any more are left in it.
Model WithNormsFolded(const Model& model, const ShapeMap& inputs);

}  // namespace bindery
