// A trained model in integers of 8 bits, calibrated from data: convolutions, full connections and products by matrices
// multiply integers, all else computes as before.
//
//   Model small = Quantized(LoadModel("lenet.pb"), data);
//   SaveModel(small, "lenet8.onnx");                      // for us, and for others: opset 17
//
// What comes out is ONNX' form: each layer's data pass QuantizeLinear and DequantizeLinear, its weight is int8 behind a
// DequantizeLinear, its bias int32 behind another. The meaning is that of these real numbers, on any device;
// predictions on CPUs multiply the integers (symbol/ops/quantized.h, docs/int8.md). Batch-norms behind layers are
// folded into them first.
//
// Thread safety: functions; any thread.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "symbol/model.h"
#include "train/data/data_iter.h"

namespace bindery {

struct QuantizeOptions {
  // Of a layer's data: kUInt8 or kInt8, by one scale and one zero point, from the smallest to the largest value that
  // the data made, 0 among them.
  DType activations = DType::kUInt8;
  // How much of these values, in percent, the range holds; of the rest half lies beyond either end, and is clipped.
  // Below 100 the data are read twice. More than 50, at most 100.
  double percentile = 100;
  int64_t batches = 0;  // of the data; 0: a sweep
};

// Layers are the Convolutions without groups, of at most two spatial axes, the FullyConnecteds, and the MatMuls whose
// second operand is a matrix and whose first is not transposed, in float32, whose weight is a parameter that nothing
// else reads, of at most kMostProducts elements (symbol/ops/quantized.h) for each output: quantized symmetrically, each
// output by a scale of its own. Others stay as they are, the Add of a MatMul's bias among them. `data` provides the
// model's inputs by their names; a single one may be called otherwise. The result has the model's inputs, outputs and
// metadata; weights keep their names, and their scales are NAME_scale, or NAME_scale_ where another has that name.
//
// Throws Error for options out of range, ModelError if there is no such layer, DataError if there is no batch or inputs
// are missing, NumericError if a weight or what a layer sees is not finite; and what running the model throws.
Model Quantized(const Model& model, DataIter& data, const QuantizeOptions& options = {});

}  // namespace bindery
