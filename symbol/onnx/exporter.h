// The walk over a symbol's nodes, and what the function that exports one of them may ask and say. One function per
// operator of ours, in files by family (export_*.cc). Opset 17, for inference.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/onnx.pb.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/model.h"
#include "symbol/onnx/unique_names.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/order.h"

namespace bindery::onnx {

inline constexpr int kExportOpset = 17;

bool IsExported(const Node& node);                                       // is there a function for it?
const HostTensor* ValueOf(const Model& model, const std::string& name);  // of a parameter or state; null for others
GivenTypes TypesOfValues(const Symbol& symbol, const Model& model);      // of those
// What the file is to hold: losses predict, nothing is dropped, labels and targets are not asked for, numbers have
// types, and what is made of others, and is not exported as it is, is that as far as shapes are known. `with_extents`:
// inputs that leave them open have those of the training.
Symbol InferenceForm(const Model& model, bool with_extents);

class Exporter;
struct ExportRow {
  const char* op;  // of ours
  void (*export_node)(Exporter&);
  bool (*fits)(const Node&) = nullptr;  // has opset 17 what its attributes ask for? Else it is for what it is made of
};
std::span<const ExportRow> ArrangeExports();
std::span<const ExportRow> AttentionExports();
std::span<const ExportRow> BitExports();
std::span<const ExportRow> ElementwiseExports();
std::span<const ExportRow> IndexExports();
std::span<const ExportRow> LossExports();
std::span<const ExportRow> NnExports();
std::span<const ExportRow> NormExports();
std::span<const ExportRow> RandomExports();
std::span<const ExportRow> SequenceExports();
std::span<const ExportRow> ShapeExports();

class Exporter {
 public:
  // `data_outside`: large parameters have their place kExternal, and no values yet.
  Exporter(const Model& model, bool data_outside, bool with_extents);
  ModelProto Run();

  // --- The node at hand.
  const Node& node() const { return *node_; }
  template <OpAttrs A>
  const A& attrs() const {
    return node_->attrs().get<A>();
  }
  const std::string& NameOf(const Entry& value) const;
  const std::string& In(int input) const { return NameOf(node_->inputs()[static_cast<size_t>(input)]); }
  std::string In(int input, DType dtype);  // cast to it if it is of another
  std::vector<std::string> AllInputs() const;
  // Types of inputs and of output 0, as far as they are known from what variables declare and from parameters.
  DType DTypeOfInput(int input) const;
  std::optional<Shape> ShapeOfInput(int input) const;
  int RankOfInput(int input) const;  // throws ModelError if it is not known

  // --- What becomes of it. Every value has a name of its own.
  using Names = std::vector<std::string>;
  // A node of ONNX with one output, which it returns: a value on the way.
  std::string Add(const char* op, const Names& inputs) { return AddAll(op, inputs, 1)[0]; }
  Names AddAll(const char* op, const Names& inputs, int outputs);
  // The node that gives an output of the node at hand.
  void Out(const char* op, const Names& inputs, int output = 0);
  void OutAll(const char* op, const Names& inputs, int outputs);
  void AliasOutput(int output, const std::string& value);  // it is that value
  void Alias(const std::string& value) { AliasOutput(0, value); }
  // Attributes of the node added last.
  void Set(const char* key, int64_t value);
  void Set(const char* key, double value);
  void Set(const char* key, const char* value);
  template <class E>
  requires std::is_enum_v<E>  // whose names are ONNX'
  void Set(const char* key, E value) {
    for (const EnumName& name : EnumNames(static_cast<E*>(nullptr))) {
      if (name.value == static_cast<int>(value)) Set(key, name.name);
    }
  }
  void Set(const char* key, const std::vector<int64_t>& values);
  void Set(const char* key, const std::vector<std::string>& values);
  void Set(const char* key, const GraphProto& body);
  std::string NewName(const char* what);  // for a value of a body
  // Values that the file holds; `what` is said of them in their names.
  std::string Ints(const std::vector<int64_t>& values, const char* what);  // one axis
  std::string Number(double value, DType dtype);                           // no axis
  // fixed[i] + batches[i] N, with N the batch's extent; `batches` may be empty. Throws ModelError if no input tells N.
  std::string Extents(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches, const char* what);
  // How many elements are put before and after those of input 0, of all axes; no axes: the first.
  std::string Pads(const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                   const std::vector<int64_t>& axes);
  std::string Constant(const HostTensor& value, const char* what);

 private:
  void ExportVariable(const Node& node);
  void ExportOutputs();
  void LeaveOutUnused();
  NodeProto* AddNode(const char* op, const Names& inputs);
  AttributeProto* AddAttribute(const char* key, AttributeType type);
  void FillType(const Entry& value, ValueInfoProto* info) const;

  const Model& model_;
  const bool data_outside_;
  const Symbol symbol_;  // for inference, with typed numbers
  const Graph graph_;
  const std::vector<std::vector<DType>> dtypes_;
  const PartialTypes shapes_;

  ModelProto message_;
  GraphProto* const out_;
  NodeProto* last_ = nullptr;
  NodePtr node_;
  size_t index_ = 0;
  std::unordered_map<const Node*, std::vector<std::string>> names_;  // per output; "": not there
  UniqueNames given_;
};

// --- What several families use.
std::vector<int64_t> FirstAxes(size_t count);  // 0, 1, ...
std::string OneHotValues(Exporter& ex, const OneHotAttrs& attrs);
std::string OneHotIndex(Exporter& ex, const OneHotAttrs& attrs, const std::string& depth);  // of int64
void SetTopK(Exporter& ex, const TopKAttrs& attrs);

}  // namespace bindery::onnx
