// ONNX models of tests, written as protobuf's text.
#pragma once

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "proto/onnx.pb.h"
#include "symbol/graph.h"

namespace bindery {

// A file's bytes, from the text of its graph and of its functions.
inline std::string OnnxBytes(std::string_view graph, int opset = 17, std::string_view functions = "") {
  onnx::ModelProto model;
  const std::string text =
      fmt::format("ir_version: 8 opset_import {{ version: {} }} graph {{ {} }} {}", opset, graph, functions);
  if (!google::protobuf::TextFormat::ParseFromString(text, &model)) Throw("a test's model is wrong: {}", text);
  return model.SerializeAsString();
}

// "name", float32, of these dimensions: "batch, 3": names are symbolic extents.
inline std::string OnnxValue(const std::string& name, const std::string& dims, int type = 1) {
  std::string text = fmt::format("name: '{}' type {{ tensor_type {{ elem_type: {} shape {{ ", name, type);
  for (size_t begin = 0; begin < dims.size();) {
    const size_t end = std::min(dims.find(", ", begin), dims.size());
    const std::string dim = dims.substr(begin, end - begin);
    const bool is_number = dim.find_first_not_of("0123456789") == std::string::npos;
    text += is_number ? fmt::format("dim {{ dim_value: {} }} ", dim) : fmt::format("dim {{ dim_param: '{}' }} ", dim);
    begin = end + 2;
  }
  return text + "} } }";
}
inline std::string OnnxInput(const std::string& name, const std::string& dims, int type = 1) {
  return fmt::format("input {{ {} }} ", OnnxValue(name, dims, type));
}
inline std::string OnnxOutput(const std::string& name) { return fmt::format("output {{ name: '{}' }} ", name); }

// The axes that an importer left open, by input: the batch's.
inline std::map<std::string, int> OpenAxesOf(const Symbol& symbol) {
  std::map<std::string, int> axes;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (!node->is_variable() || !node->declared_shape) continue;
    const Shape& shape = *node->declared_shape;
    const auto axis = static_cast<int>(std::ranges::find(shape, kUnknownDim) - shape.begin());
    if (axis < shape.rank()) axes[node->name()] = axis;
  }
  return axes;
}

// 'Relu', "x", "y" [, attributes]; inputs and outputs apart by spaces, "-" is one that is left out.
inline std::string OnnxNode(const std::string& op, const std::string& inputs, const std::string& outputs,
                            const std::string& attributes = "") {
  const auto list = [](const char* field, const std::string& names) {
    std::string text;
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = std::min(names.find(' ', begin), names.size());
      const std::string name = names.substr(begin, end - begin);
      text += fmt::format("{}: '{}' ", field, name == "-" ? "" : name);
      begin = end + 1;
    }
    return text;
  };
  return fmt::format("node {{ op_type: '{}' {}{}{} }} ", op, list("input", inputs), list("output", outputs),
                     attributes);
}
inline std::string OnnxInts(const std::string& name, const std::string& values) {
  return fmt::format("attribute {{ name: '{}' type: 7 ints: [{}] }} ", name, values);
}
inline std::string OnnxGraph(const std::string& name, const std::string& graph) {
  return fmt::format("attribute {{ name: '{}' type: 5 g {{ {} }} }} ", name, graph);
}
inline std::string OnnxInt(const std::string& name, int64_t value) {
  return fmt::format("attribute {{ name: '{}' i: {} }} ", name, value);
}

// An initializer: of int64 values, or of float32 values.
inline std::string OnnxInt64s(const std::string& name, const std::string& dims, const std::string& values) {
  return fmt::format("initializer {{ name: '{}' data_type: 7 dims: [{}] int64_data: [{}] }} ", name, dims, values);
}
inline std::string OnnxFloats(const std::string& name, const std::string& dims, const std::string& values) {
  return fmt::format("initializer {{ name: '{}' data_type: 1 dims: [{}] float_data: [{}] }} ", name, dims, values);
}

}  // namespace bindery
