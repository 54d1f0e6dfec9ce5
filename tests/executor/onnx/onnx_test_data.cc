#include "tests/executor/onnx/onnx_test_data.h"

#include "base/files.h"
#include "symbol/onnx/reader.h"

namespace bindery {
namespace {

onnx::ModelProto ReadModel(const std::string& folder) {
  return onnx::ReadMessage(ReadFile(folder + "/model.onnx"), folder, {});
}

HostTensor ReadTensor(const std::string& path, DType declared) {
  onnx::TensorProto message;
  if (!message.ParseFromString(ReadFile(path))) Throw<DataError>("{}: not a valid message", path);
  const DType dtype = onnx::DTypeOf(message.data_type());
  if (declared == DType::kBFloat16 && dtype == DType::kUInt16) {  // files have the bits
    message.set_data_type(onnx::NumberOf(declared));
  }
  return onnx::OnnxTensorReader({}, "").Read(message);
}

bool Trains(const onnx::NodeProto& node, const HostTensorMap& feeds, const onnx::GraphProto& graph) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "training_mode" && attribute.i() != 0) return true;
  }
  if (node.op_type() != "Dropout" || node.input_size() < 3) return false;
  if (const auto fed = feeds.find(node.input(2)); fed != feeds.end()) return fed->second.At(0) != 0;
  for (const onnx::NodeProto& other : graph.node()) {
    if (other.output_size() > 0 && other.output(0) == node.input(2) && other.op_type() == "Constant") {
      return onnx::OnnxTensorReader({}, "").Read(other.attribute(0).t()).At(0) != 0;
    }
  }
  return false;
}

}  // namespace

OnnxTest ReadOnnxTest(const std::string& folder) {
  const onnx::ModelProto model = ReadModel(folder);
  const onnx::GraphProto& graph = model.graph();
  OnnxTest test{.model = ReadFile(folder + "/model.onnx")};
  std::set<std::string> initializers;
  for (const onnx::TensorProto& tensor : graph.initializer()) initializers.insert(tensor.name());
  const auto read = [&](const char* kind, int i, const onnx::ValueInfoProto& value) {
    if (!value.type().has_tensor_type()) Throw("{} is not a tensor", value.name());
    return ReadTensor(fmt::format("{}/test_data_set_0/{}_{}.pb", folder, kind, i),
                      onnx::DTypeOf(value.type().tensor_type().elem_type()));
  };
  int fed = 0;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    if (!initializers.contains(input.name())) test.feeds[input.name()] = read("input", fed++, input);
  }
  for (int i = 0; i < graph.output_size(); ++i) test.expected.push_back(read("output", i, graph.output(i)));
  for (const onnx::NodeProto& node : graph.node()) {
    if (Trains(node, test.feeds, graph)) test.mode = Mode::kTrain;
  }
  return test;
}

}  // namespace bindery
