// What loads, binds and runs networks, without training: the part of the library that libbindery_predict.so has.
//
//   #include <bindery/predict.h>
//
//   const bindery::Predictor predictor("mlp.pb", {.inputs = {{"data", {64, 1, 28, 28}}}});
//   std::vector<bindery::HostTensor> scores = predictor.Predict({{"data", images}});   // from any thread
#pragma once

#include "base/error.h"
#include "base/host_tensor.h"
#include "base/log.h"
#include "bindery/version.h"
#include "executor/executor.h"
#include "executor/predictor.h"
#include "symbol/model.h"
#include "symbol/print/summary.h"
