// The walk over a graph's nodes, and what the function that imports one of them may ask and say. One function per ONNX
// operator, in files by family (import_*.cc), in tables by operator and the opset version since which it holds.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "symbol/infer.h"
#include "symbol/onnx/onnx.h"
#include "symbol/onnx/reader.h"
#include "symbol/onnx/types.h"
#include "symbol/symbol.h"

namespace bindery::onnx {

class Importer;
using ImportFn = std::function<void(Importer&)>;
struct ImportRow {
  const char* op;
  int since;  // version of the opset
  ImportFn import;
};
std::span<const ImportRow> ElementwiseImports();
std::span<const ImportRow> IndexImports();
std::span<const ImportRow> LossImports();
std::span<const ImportRow> NnImports();
std::span<const ImportRow> NormImports();
std::span<const ImportRow> RandomImports();
std::span<const ImportRow> ReduceImports();
std::span<const ImportRow> SequenceImports();
std::span<const ImportRow> ShapeImports();

// Whole numbers that tell extents, as far as they are known: of a tensor with at most one axis.
struct Numbers {
  std::vector<Extent> values = {};
  bool is_scalar = false;  // no axis
  DType dtype = DType::kInt64;
};
bool IsFixed(const Numbers& numbers);  // does none follow the batch?
// Computes a node from numbers alone (shape sub-graphs); no value where it cannot.
std::optional<Numbers> Fold(Importer& im);

class Importer {
 public:
  // `any_batch`: the batch's extent is left open, whatever the file says.
  Importer(const ModelProto& model, const std::string& source, const OnnxOptions& options, OnnxTensorReader* tensors,
           bool any_batch);
  Model Run();
  std::optional<int64_t> file_batch() const { return file_batch_; }  // the batch's extent in the file, if it has one
  void CheckOtherBatch(const Symbol& symbol) const;                  // throws ShapeError if no other fits

  // --- The node at hand. Everything throws ModelError, to which the node is added.
  const std::string& op() const { return node_->op_type(); }
  const std::string& name() const { return name_; }  // its own, or that of its first output
  int64_t opset() const { return opset_; }

  // Attributes. One of another type is an error, and so is one that nobody asks for.
  bool HasAttribute(const char* key) const { return Find(key) != nullptr; }
  int64_t Int(const char* key, int64_t otherwise) const;
  bool Flag(const char* key, bool otherwise = false) const { return Int(key, otherwise) != 0; }
  double Float(const char* key, double otherwise) const;
  std::string String(const char* key, const std::string& otherwise) const;
  std::vector<int64_t> Ints(const char* key) const;  // empty if absent
  std::vector<double> Floats(const char* key) const;
  std::vector<std::string> Strings(const char* key) const;
  std::optional<HostTensor> Tensor(const char* key) const;
  // One of the names of an enum, which are ONNX' where this is asked.
  template <class E>
  E Enum(const char* key, E otherwise) const {
    return static_cast<E>(NumberOf(key, static_cast<int>(otherwise), EnumNames(static_cast<E*>(nullptr))));
  }
  void Ignore(std::initializer_list<const char*> keys) const;

  // Inputs.
  int num_inputs() const { return node_->input_size(); }
  bool Has(int input) const { return input < num_inputs() && !node_->input(input).empty(); }
  Symbol In(int input);
  std::vector<Symbol> AllInputs();
  // The value, if the file or the caller says it; null where it is computed.
  const HostTensor* Constant(int input) const;
  // A value that must be said, because our operator has it as an attribute.
  const HostTensor& Static(int input) const;
  std::vector<int64_t> StaticInts(int input) const;
  int64_t StaticNumber(int input) const;  // of one element
  Extents StaticExtents(int input) const;
  bool IsStatic(int input) const;  // can its extents be said?
  // Has the node this input, but computed, so that it is for an operator that takes it as an input?
  bool IsComputed(int input) const { return Has(input) && !IsStatic(input); }
  int64_t LengthOf(int input);                        // of a list that is computed; throws if it is not known
  std::optional<Numbers> NumbersOf(int input) const;  // not of the graph's inputs: those are computed with
  // Axes and the like: an attribute up to some version, an input since. Empty if neither is there.
  std::vector<int64_t> AttributeOrInput(const char* key, int input) const;
  bool IsOnlyReader(int input) const;
  // What the file holds, of floating point: a layer's parameters, even if they are not among the initializers.
  const HostTensor* Weight(int input) const;
  Symbol WeightIn(int input);  // a parameter if it is a weight
  // The parameter with another value, say transposed, under another name if others read it.
  Symbol Parameter(int input, HostTensor value);

  Symbol List(const std::vector<int64_t>& values) const;  // a constant of one axis

  // Types.
  DType DTypeOf(const Symbol& value);
  std::optional<PartialExtents> KnownExtentsOf(const Symbol& value) { return types_->ExtentsOf(value); }
  PartialExtents ExtentsOf(const Symbol& value);  // throws if the number of axes is not known
  int RankOf(const Symbol& value) { return static_cast<int>(ExtentsOf(value).size()); }
  int AxisOf(const Symbol& value, int64_t axis);                     // from 0 on
  Shape ShapeOf(const Symbol& value);                                // kUnknownDim also where the batch is followed
  std::optional<int64_t> BakedBatch(const Symbol& value, int axis);  // what the file has in place of the batch there

  // Outputs.
  int num_outputs() const { return node_->output_size(); }
  bool Wanted(int output) const { return output < num_outputs() && !node_->output(output).empty(); }
  bool IsRead(int output) const;  // by a node, or as the graph's
  void OnlyFirst() const;         // throws if another one is read
  void Out(int output, const Symbol& value);
  void Out(const Symbol& value) { Out(0, value); }
  void OutConstant(HostTensor value);
  void OutInitializer(HostTensor value);  // as if the file had it by the output's name

 private:
  struct Value {
    Symbol symbol = {};  // empty: not made yet
    std::shared_ptr<const HostTensor> constant = {};
    std::optional<Numbers> numbers = {};  // if the batch is in them; the symbol computes the same
    bool is_initializer = false, is_input = false;
  };

  void DeclareInputs();
  void DeclareInput(const ValueInfoProto& input);
  void CheckOperators() const;
  void ImportNode(int index);
  void Define(const std::string& name, Value value);
  void OutFixed(const Numbers& numbers);
  Symbol MakeParameter(const std::string& name, HostTensor value);
  const Value& ValueOf(int input) const;
  Value& ValueOf(int input) { return const_cast<Value&>(std::as_const(*this).ValueOf(input)); }
  const AttributeProto* Find(const char* key) const;
  const AttributeProto* FindOf(const char* key, AttributeType type, const char* kind) const;
  int NumberOf(const char* key, int otherwise, std::span<const EnumName> names) const;
  [[noreturn]] void Fail(const std::string& message) const;

  const ModelProto& model_;
  const std::string& source_;
  const OnnxOptions& options_;
  OnnxTensorReader* const tensors_;
  const bool any_batch_;
  int64_t opset_ = 0;

  std::optional<int64_t> file_batch_;
  std::string batch_param_, batch_input_;
  int batch_axis_ = 0;
  ShapeMap other_batch_;  // of batched inputs
  std::optional<ValueTypes> types_;

  std::unordered_map<std::string, Value> values_;
  std::unordered_map<std::string, int> uses_;
  HostTensorMap parameters_;

  const NodeProto* node_ = nullptr;
  std::string name_;
  mutable std::set<std::string> asked_;
};

// The row for an operator of ONNX' own domain in an opset; null if there is none.
const ImportRow* FindImport(const std::string& op, int64_t opset);

// --- What several families use.
using SymbolFn = std::function<Symbol(const Symbol& x, const std::string& name)>;
ImportFn Unary(const SymbolFn& f);
// Of one extent that is not known, the rest; of more than one a Reshape cannot be made, and this throws.
bool CanReshapeTo(const PartialExtents& extents);
Symbol ReshapeTo(const Symbol& x, const PartialExtents& extents, const std::string& name = {});
// The product of extents; no value if that is unknown or not even growing with the batch.
std::optional<Extent> Product(std::span<const std::optional<Extent>> extents);

}  // namespace bindery::onnx
