#include "tests/executor/onnx_reader.h"

#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/files.h"
#include "tests/executor/onnx_test.pb.h"

namespace bindery {
namespace {

template <class Message>
Message ReadMessage(const std::string& path) {
  Message message;
  if (!message.ParseFromString(ReadFile(path))) Throw<DataError>("{}: not a valid message", path);
  return message;
}

DType DTypeOf(int type) {
  switch (type) {
    case onnx_test::TensorProto::FLOAT: return DType::kFloat32;
    case onnx_test::TensorProto::DOUBLE: return DType::kFloat64;
    case onnx_test::TensorProto::BFLOAT16: return DType::kBFloat16;
    case onnx_test::TensorProto::FLOAT16: return DType::kFloat16;
    case onnx_test::TensorProto::INT8: return DType::kInt8;
    case onnx_test::TensorProto::INT32: return DType::kInt32;
    case onnx_test::TensorProto::INT64: return DType::kInt64;
    case onnx_test::TensorProto::UINT8: return DType::kUInt8;
    case onnx_test::TensorProto::BOOL: return DType::kBool;
    case onnx_test::TensorProto::INT16: return DType::kInt16;
    case onnx_test::TensorProto::UINT16: return DType::kUInt16;
    case onnx_test::TensorProto::UINT32: return DType::kUInt32;
    case onnx_test::TensorProto::UINT64: return DType::kUInt64;
    default: Throw("element type {} of ONNX has no counterpart", type);
  }
}

HostTensor TensorOf(const onnx_test::TensorProto& proto, std::optional<DType> declared = {}) {
  const Shape shape(std::vector<int64_t>(proto.dims().begin(), proto.dims().end()));
  DType dtype = DTypeOf(proto.data_type());
  if (declared == DType::kBFloat16 && dtype == DType::kUInt16) dtype = *declared;  // files have the bits
  HostTensor tensor(dtype, shape);
  if (proto.has_raw_data()) {
    if (static_cast<int64_t>(proto.raw_data().size()) != tensor.bytes()) Throw<DataError>("raw data of a wrong size");
    if (tensor.bytes() > 0) std::memcpy(tensor.raw(), proto.raw_data().data(), proto.raw_data().size());
    return tensor;
  }
  const bool is_half = tensor.dtype() == DType::kBFloat16 || tensor.dtype() == DType::kFloat16;
  for (int i = 0; i < static_cast<int>(tensor.elements()); ++i) {
    if (proto.float_data_size() > i) {
      tensor.Set(i, proto.float_data(i));
    } else if (proto.double_data_size() > i) {
      tensor.Set(i, proto.double_data(i));
    } else if (proto.uint64_data_size() > i) {
      tensor.Set(i, static_cast<double>(proto.uint64_data(i)));
    } else if (proto.int64_data_size() > i) {
      tensor.data<int64_t>()[i] = proto.int64_data(i);
    } else if (proto.int32_data_size() > i && is_half) {  // the bits
      static_cast<uint16_t*>(tensor.raw())[i] = static_cast<uint16_t>(proto.int32_data(i));
    } else if (proto.int32_data_size() > i) {
      tensor.Set(i, proto.int32_data(i));
    } else {
      Throw<DataError>("a tensor without data");
    }
  }
  return tensor;
}

OnnxNode NodeOf(const onnx_test::NodeProto& proto) {
  OnnxNode node{.op = proto.op_type(),
                .name = proto.name(),
                .inputs = {proto.input().begin(), proto.input().end()},
                .outputs = {proto.output().begin(), proto.output().end()}};
  for (const onnx_test::AttributeProto& a : proto.attribute()) {
    if (a.has_i()) node.ints[a.name()] = a.i();
    if (a.has_f()) node.floats[a.name()] = a.f();
    if (a.has_s()) node.strings[a.name()] = a.s();
    if (a.ints_size() > 0) node.int_lists[a.name()] = {a.ints().begin(), a.ints().end()};
    if (a.has_t()) node.tensors[a.name()] = TensorOf(a.t());
  }
  return node;
}

std::set<std::string> InitializerNames(const onnx_test::GraphProto& graph) {
  std::set<std::string> names;
  for (const onnx_test::TensorProto& tensor : graph.initializer()) names.insert(tensor.name());
  return names;
}

template <class T>
T Find(const std::map<std::string, T>& map, const std::string& key, const T& otherwise) {
  const auto found = map.find(key);
  return found == map.end() ? otherwise : found->second;
}

}  // namespace

int64_t OnnxNode::Int(const std::string& key, int64_t otherwise) const { return Find(ints, key, otherwise); }
double OnnxNode::Float(const std::string& key, double otherwise) const { return Find(floats, key, otherwise); }
std::string OnnxNode::String(const std::string& key, const std::string& otherwise) const {
  return Find(strings, key, otherwise);
}
std::vector<int64_t> OnnxNode::Ints(const std::string& key) const { return Find(int_lists, key, {}); }

std::vector<std::string> OnnxOperators(const std::string& folder) {
  const auto model = ReadMessage<onnx_test::ModelProto>(folder + "/model.onnx");
  std::set<std::string> names;
  for (const onnx_test::NodeProto& node : model.graph().node()) names.insert(node.op_type());
  return {names.begin(), names.end()};
}

OnnxTest ReadOnnxTest(const std::string& folder) {
  const auto proto = ReadMessage<onnx_test::ModelProto>(folder + "/model.onnx");
  const onnx_test::GraphProto& graph = proto.graph();
  OnnxTest test;
  OnnxModel& model = test.model;
  for (const onnx_test::OperatorSetIdProto& set : proto.opset_import()) {
    if (set.domain().empty()) model.opset = set.version();
  }
  for (const onnx_test::NodeProto& node : graph.node()) model.nodes.push_back(NodeOf(node));
  for (const onnx_test::TensorProto& tensor : graph.initializer()) model.initializers[tensor.name()] = TensorOf(tensor);
  const std::set<std::string> initializers = InitializerNames(graph);
  for (const onnx_test::ValueInfoProto& input : graph.input()) {
    if (!initializers.contains(input.name())) model.inputs.push_back(input.name());
  }
  for (const onnx_test::ValueInfoProto& output : graph.output()) model.outputs.push_back(output.name());
  std::map<std::string, DType> declared;
  for (const auto* list : {&graph.input(), &graph.output()}) {
    for (const onnx_test::ValueInfoProto& value : *list) {
      if (!value.type().has_tensor_type()) Throw("{} is not a tensor", value.name());
      declared[value.name()] = DTypeOf(value.type().tensor_type().elem_type());
    }
  }

  const std::string data = folder + "/test_data_set_0/";
  const auto read = [&](const char* kind, size_t i, const std::string& name) {
    return TensorOf(ReadMessage<onnx_test::TensorProto>(fmt::format("{}{}_{}.pb", data, kind, i)), declared.at(name));
  };
  for (size_t i = 0; i < model.inputs.size(); ++i) test.feeds[model.inputs[i]] = read("input", i, model.inputs[i]);
  for (size_t i = 0; i < model.outputs.size(); ++i) test.expected.push_back(read("output", i, model.outputs[i]));
  return test;
}

}  // namespace bindery
