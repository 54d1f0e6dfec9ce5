// Models from and to ONNX (docs/onnx.md). An imported model is a Model like any other: LoadModel and SaveModel come
// here for names that end in .onnx. As with our own files, one from an untrusted source gives a model or an error that
// names the node and the attribute.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/host_tensor.h"
#include "symbol/model.h"

namespace bindery {

struct OnnxOptions {
  // Inputs whose values are known: they stay inputs, but what must be known of a graph to bind it may depend on them.
  HostTensorMap known = {};
  std::map<std::string, Shape> shapes = {};  // of inputs, in place of what the file says
};

// Initializers of floating point with at least one axis become parameters and auxiliary states of their names, those of
// one element where a layer takes them as its weight, and integers where DequantizeLinear takes them for real numbers;
// all other values that the file holds become constants. The
// batch's extent is left open: it is the first axis of the first input, unless one of its axes has a name (dim_param)
// that begins with "batch" or is "N", and every axis of other inputs with the same name, or the same number at axis 0.
// A file that fits one batch alone gives a model that does.
//
// Throws ModelError, which lists all operators that are not known at once; DataError for data files in `folder` (empty:
// there are none).
Model ParseOnnx(std::string_view bytes, const std::string& source_name = "<memory>", const std::string& folder = {},
                const OnnxOptions& options = {}, const ModelLimits& limits = {});

// The operators of ONNX' own domain that can be imported, sorted: "Add", each with the opset versions from which on
// they have a meaning of their own.
std::map<std::string, std::vector<int>> OnnxImports();

// The message for a model as it predicts: dropout is gone, a loss is what it predicts (SoftmaxOutput a Softmax),
// batch-norm has its running values, labels are not asked for. Opset 17; extents that are not known have names
// ("batch"). Throws ModelError that lists all operators which cannot be exported, with the nodes that use them.
std::string SerializeOnnx(const Model& model);

// The same for a file of this name, in a folder. Where the parameters take more than `message_bytes`, the large ones
// are in a data file beside it, each from a multiple of 4096 bytes on: ONNX' messages end at 2 GiB.
struct OnnxFile {
  std::string message;
  std::string data_file = {};                            // `<name>.<16 hex digits>.data`; empty: there is none
  std::function<void(const ByteSink&)> write_data = {};  // its content; the model must be there still
};
OnnxFile WriteOnnx(const Model& model, const std::string& name, int64_t message_bytes = int64_t{3} << 29);
// The data files that a message names. Throws ModelError.
std::set<std::string> OnnxDataFiles(std::string_view bytes);

// Our operators that can be exported, sorted.
std::vector<std::string> OnnxExports();

}  // namespace bindery
