// What batch normalisation and its parts share. Private to symbol/ops.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "symbol/ops/batch_norm.h"
#include "symbol/ops/common.h"

namespace bindery::rule {

void CheckBatchNorm(const AnyAttrs& attrs);

// The values are (C) each, C the data's channels, known from any of them.
void InferChannels(const BatchNormAttrs& attrs, Value data, std::initializer_list<Value> per_channel);

// Which values are of data's type, and which is a state (uint8); all others are parameters or statistics: float64 for
// float64 data, else float32.
struct BatchNormTypes {
  std::vector<int> data_inputs = {}, data_outputs = {};
  int state_input = -1, state_output = -1;
};
void BatchNormDTypes(InferDTypeContext& c, const BatchNormTypes& types);

std::vector<std::string> BatchNormOutputs(const BatchNormAttrs& attrs);

// The running values at inputs `mean` and `mean` + 1, moved by the statistics of all devices.
std::vector<StateUpdate> MoveRunning(const UpdateContext& c, const Symbol& statistics, int mean);

// Throws ModelError if something flows back into mean or var.
void RefuseStatisticsGradient(const GradientContext& g);

}  // namespace bindery::rule
