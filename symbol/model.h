// Model: a symbol with its parameters, as a file. Binary (.pb) or text (.prototxt), by proto/model.proto, ONNX (.onnx,
// symbol/onnx/onnx.h), or, to be read only, MXNet's (.json, .params, symbol/mxnet/mxnet.h); the name's ending decides.
// Reading a file from an untrusted source gives a model or an error that says file and place (line and column in text,
// node in binary), never a crash, and never allocates beyond the limits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/host_tensor.h"
#include "symbol/symbol.h"

namespace bindery {

struct Model {
  Symbol symbol = {};
  HostTensorMap params = {}, aux = {};  // values by name; may be empty (architecture only)
  std::map<std::string, std::string> metadata = {};
};

// A model with another symbol, made of its own: of its values, those that this one still has.
//
//   model = Cut(model, SoftmaxOutput(FullyConnected(model.symbol.Internals()["features_output"], {.num_hidden = 5})));
Model Cut(const Model& model, const Symbol& symbol);

// The heads that predict: without losses (of one input, as MakeLoss) that read a variable, their target, which no other
// head reads to predict (its own label does not count) and nobody gives, as `is_given` has it by name. All heads, if
// none would be left.
Symbol WithoutTargets(const Symbol& symbol, const std::function<bool(const std::string& variable)>& is_given);

// What a trained model was given, where its graph leaves that open: kept among the metadata ("bindery.inputs"). It
// tells who has to know shapes before data come; other extents and types may come all the same.
struct TrainedInput {
  DType dtype = DType::kFloat32;
  Shape shape = {};  // the batch's extent is kUnknownDim
  bool operator==(const TrainedInput&) const = default;
};
std::map<std::string, TrainedInput> TrainedInputs(const Model& model);  // by name
void SetTrainedInputs(const std::map<std::string, TrainedInput>& inputs, Model* model);

struct ModelLimits {
  int64_t file_bytes = int64_t{2} << 30;     // of the message
  int64_t tensor_bytes = int64_t{64} << 30;  // of all tensors together
  int64_t nodes = 10'000'000;
  int recursion = 100;
};

// Written atomically. A .pb whose tensors take no more than kWholeBytes in all is one file. Else, and in text, which
// people read, those above a small size go to `<path>.<checksum>.data` beside it, page aligned, each with its checksum
// (an existing data file of another save is left alone until the new message is in place). Of .onnx: docs/onnx.md.
inline constexpr int64_t kWholeBytes = int64_t{16} << 20;
void SaveModel(const Model& model, const std::string& path);
// Throws ModelError, as SaveModel does, unless the name's ending is one that is written.
void CheckModelName(const std::string& path);
// Throws ModelError or DataError.
Model LoadModel(const std::string& path, const ModelLimits& limits = {});

// The message alone, tensors inside; for embedding and tests.
std::string SerializeModel(const Model& model, bool text = false);
Model ParseModel(std::string_view bytes, bool text = false, const std::string& source_name = "<memory>",
                 const ModelLimits& limits = {});

}  // namespace bindery
