// What operators compute goes through ONNX and comes back: every case of every operator in float32, as inference has it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "symbol/graph.h"
#include "symbol/onnx/onnx.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/operator_cases.h"
#include "tests/executor/prepared_case.h"
#include "tests/symbol/onnx_models.h"

namespace bindery {
namespace {

// Its variables declare the shapes and types of the values.
Symbol Declared(const Symbol& symbol, const HostTensorMap& values) {
  std::unordered_map<const Node*, Entry> replaced;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (!node->is_variable()) continue;
    const HostTensor& value = values.at(node->name());
    replaced[node.get()] = Variable(node->name(), {.shape = value.shape(), .dtype = value.dtype()}).entry();
  }
  return Rewrite(
      symbol, [](const NodePtr&, const std::vector<Entry>&) { return std::vector<Entry>(); }, replaced);
}

// "" if it cannot be exported.
std::string Exported(const Symbol& symbol) {
  try {
    return SerializeOnnx({.symbol = symbol});
  } catch (const ModelError&) {
    return "";
  }
}

void ExpectEqual(const HostTensor& actual, const HostTensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape());
  EXPECT_EQ(actual.dtype(), expected.dtype());
  for (int64_t i = 0; i < actual.elements(); ++i) {
    const double a = actual.At(i), e = expected.At(i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    ASSERT_LE(std::fabs(a - e), 1e-5 + 1e-4 * std::fabs(e)) << "element " << i << ": " << a << " instead of " << e;
  }
}

std::set<std::string> OperatorsOf(const Symbol& symbol) {
  std::set<std::string> names;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (!node->is_variable()) names.insert(node->op().name);
  }
  return names;
}

TEST(OnnxExport, WhatOperatorsComputeComesBack) {
  std::set<std::string> exported, all;
  for (const OperatorCase& c : AllOperatorCases()) {
    SCOPED_TRACE(c.name);
    const std::set<std::string> operators = OperatorsOf(c.symbol);
    all.insert(operators.begin(), operators.end());
    const PreparedCase prepared(c);
    const HostTensorMap values = PreparedCase::CastTo(prepared.TypesFor(DType::kFloat32), c.inputs, c.symbol);
    const Symbol symbol = Declared(c.symbol, values);
    const std::string bytes = Exported(symbol);
    if (bytes.empty()) continue;
    try {
      const Model loaded = ParseOnnx(bytes);
      HostTensorMap inputs = loaded.params;
      inputs.insert(values.begin(), values.end());
      const RunOptions options{
          .mode = Mode::kPredict, .step = c.step, .batch_axes = OpenAxesOf(loaded.symbol), .watch = false};
      const RunResult expected = RunGraph(symbol, values, options), actual = RunGraph(loaded.symbol, inputs, options);
      for (size_t i = 0; i < expected.outputs.size(); ++i) ExpectEqual(actual.outputs[i], expected.outputs[i]);
      exported.insert(operators.begin(), operators.end());
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  // Which operators are never exported stands in tests/symbol/onnx_import_test.cc.
  const std::vector<std::string> exports = OnnxExports();
  for (const std::string& op : exports) EXPECT_TRUE(exported.contains(op) || !all.contains(op)) << op;
}

}  // namespace
}  // namespace bindery
