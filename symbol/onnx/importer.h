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
#include "symbol/onnx/unique_names.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/pooling.h"
#include "symbol/symbol.h"

namespace bindery::onnx {

class Importer;
using ImportFn = std::function<void(Importer&)>;
struct ImportRow {
  const char* op;  // FullName
  int since;       // version of the opset
  ImportFn import;
};
std::span<const ImportRow> AttentionImports();
std::span<const ImportRow> ControlImports();
std::span<const ImportRow> ElementwiseImports();
std::span<const ImportRow> FusedImports();
std::span<const ImportRow> IndexImports();
std::span<const ImportRow> LossImports();
std::span<const ImportRow> NnImports();
std::span<const ImportRow> NormImports();
std::span<const ImportRow> QuantizeImports();
std::span<const ImportRow> RandomImports();
std::span<const ImportRow> ReduceImports();
std::span<const ImportRow> SequenceImports();
std::span<const ImportRow> ShapeImports();

// Whole numbers that tell extents, as far as they are known: of a tensor with at most one axis.
struct Numbers {
  PartialExtents values = {};
  bool is_scalar = false;  // no axis
  DType dtype = DType::kInt64;
};
bool AreKnown(const Numbers& numbers);  // all of them?
bool IsFixed(const Numbers& numbers);   // and does none follow the batch?

// What a name of the file stands for.
struct Value {
  std::string name = {};  // by which it was defined
  Symbol symbol = {};     // empty: not made yet
  std::shared_ptr<const HostTensor> constant = {};
  std::optional<Numbers> numbers = {};  // if the batch is in them, or some are open; the symbol computes the same
  bool is_initializer = false, is_input = false;
  int bits = 0;                                // of the file's integers, if they are fewer than the constant's have
  std::map<std::string, Symbol> changed = {};  // parameters made of it, by what was done
};
using ValuePtr = std::shared_ptr<Value>;

// How often each name of a graph is read: by nodes of graphs within it, which may be run many times, as twice.
using Uses = std::unordered_map<std::string, int>;

// The names of a graph, of one step of a loop, or of a function's call.
struct Frame {
  const Frame* outer = nullptr;  // whose names are known here, too
  const Uses* uses = nullptr;
  std::unordered_map<std::string, ValuePtr> values = {};         // null: an input that a call leaves out
  std::map<std::string, const AttributeProto*> attributes = {};  // of a function's call
};

// A graph within a node.
struct Body {
  const GraphProto* graph;
  Frame frame = {};
};

inline constexpr size_t kMaxNumbers = 1024;  // elements of what may be numbers

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
  std::optional<HostTensor> Tensor(const char* key, int* bits = nullptr) const;
  // One of the names of an enum, which are ONNX' where this is asked.
  template <class E>
  E Enum(const char* key, E otherwise) const {
    return static_cast<E>(NumberOf(key, static_cast<int>(otherwise), EnumNames(static_cast<E*>(nullptr))));
  }
  void Ignore(std::initializer_list<const char*> keys) const;

  // Inputs.
  int num_inputs() const { return node_->input_size(); }
  bool Has(int input) const;
  Symbol In(int input) { return SymbolOf(*ValueOf(input)); }
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
  bool IsOpen(int input) const { return Has(input) && Constant(input) == nullptr; }  // or does it follow the batch?
  int64_t LengthOf(int input);  // of a list that is computed; throws if it is not known
  // As far as they are known; not of the graph's inputs: those are computed with.
  std::optional<Numbers> NumbersOf(int input) const;
  std::optional<Numbers> OpenNumbers(int input);  // as many as are computed, none of them known
  // Axes and the like: an attribute up to some version, an input since. Empty if neither is there.
  std::vector<int64_t> AttributeOrInput(const char* key, int input) const;
  bool IsOnlyReader(int input) const;
  int BitsOf(int input) const { return ValueOf(input)->bits; }
  // What the file holds; null where it is computed or an input. Of floating point it is a layer's parameters, even if
  // they are not among the initializers.
  const HostTensor* Held(int input) const;
  const HostTensor* Weight(int input) const;
  Symbol WeightIn(int input);    // a parameter if it is a weight
  Symbol IntegersIn(int input);  // that stand for a weight: a parameter, if they are an initializer with an axis
  // The parameter with another value, under another name if others read it; `how` it is changed: "transposed".
  Symbol Parameter(int input, const std::string& how, const std::function<HostTensor(const HostTensor&)>& change);

  Symbol List(const std::vector<int64_t>& values) const;  // a constant of one axis

  // Types.
  DType DTypeOf(const Symbol& value);
  std::optional<PartialExtents> KnownExtentsOf(const Symbol& value) { return types_->ExtentsOf(value); }
  PartialExtents ExtentsOf(const Symbol& value);  // throws if the number of axes is not known
  int RankOf(const Symbol& value) { return static_cast<int>(ExtentsOf(value).size()); }
  int AxisOf(const Symbol& value, int64_t axis);  // from 0 on
  Shape ShapeOf(const Symbol& value);             // kUnknownDim also where the batch is followed
  std::string HowToState() const;  // for complaints of what is not known: which extents are open, and how to state them
  std::optional<int64_t> BakedBatch(const Symbol& value, int axis);  // what the file has in place of the batch there

  // Outputs.
  int num_outputs() const { return node_->output_size(); }
  bool Wanted(int output) const { return output < num_outputs() && !node_->output(output).empty(); }
  bool IsRead(int output) const;  // by a node, or as the graph's
  void OnlyFirst() const;         // throws if another one is read
  void Out(int output, const Symbol& value);
  void Out(const Symbol& value) { Out(0, value); }
  void OutConstant(HostTensor value, int bits = 0);
  // What the file holds, as if it had it, or made it, by the output's name; in another shape, it is a copy.
  void OutHeld(int input, const std::optional<Shape>& shape = std::nullopt);

  // --- Values, and graphs within nodes. All that is made of those is limited, however often they are run.
  void Charge(int64_t more);  // for steps, and nodes and values in them: throws if so many more are too many
  void ChargeBytes(int64_t more) { tensors_->Charge(more); }  // for tensors made of the file's
  const ValuePtr& ValueOf(int input) const;
  Symbol SymbolOf(Value& value);
  void OutValue(int output, const ValuePtr& value);
  std::unique_ptr<Body> OpenBody(const char* attribute);
  // Its outputs; `step` says in messages which time it is, and "_0" in names.
  std::vector<ValuePtr> Run(const Body& body, const std::vector<ValuePtr>& inputs, const std::string& step,
                            const std::string& suffix);

 private:
  using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;
  static constexpr int64_t kMaxUnrolled = 100'000;                // steps, and nodes and values in them
  static constexpr int64_t kMaxUnrolledBytes = int64_t{1} << 28;  // of the nodes' messages
  static constexpr int kMaxDepth = 64;                            // of calls and graphs within others
  void DeclareInputs();
  void DeclareInput(const ValueInfoProto& input);
  void CheckOperators() const;
  void ReadInitializers(const GraphProto& graph);
  void ImportNodes(const Nodes& nodes);
  void ImportNode(const NodeProto& node, const std::string& name);
  const FunctionProto* FindFunction(const NodeProto& node) const;
  int64_t OpsetOf(const FunctionProto& function) const;
  void Call(const FunctionProto& function);
  void RunNodes(Frame* frame, const std::string& suffix, int64_t opset, const Nodes& nodes);
  const ValuePtr* Lookup(const std::string& name) const;  // null: nothing is called so
  int ReadersOf(const std::string& name) const;
  void Define(const std::string& name, Value value) { Define(name, std::make_shared<Value>(std::move(value))); }
  void Define(const std::string& name, ValuePtr value);
  void OutFixed(const Numbers& numbers);
  Symbol MakeParameter(const std::string& name, std::shared_ptr<const HostTensor> value);
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
  std::string open_;  // axes of inputs, as they are told to the reader
  int batch_axis_ = 0;
  ShapeMap other_batch_;  // of batched inputs
  std::optional<ValueTypes> types_;

  Uses uses_;
  Frame graph_;             // of the model
  Frame* frame_ = &graph_;  // of the node at hand
  std::map<std::string, std::shared_ptr<const HostTensor>> parameters_;
  std::map<std::pair<std::string, const HostTensor*>, Symbol> made_;  // parameters, by the names that were asked for
  UniqueNames variables_;
  // Constants and initializers of graphs within nodes, which may be run many times.
  std::unordered_map<const google::protobuf::Message*, ValuePtr> constants_;
  using FunctionName = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
  std::map<FunctionName, const FunctionProto*> functions_;
  std::unordered_map<const google::protobuf::Message*, Uses> uses_of_;  // functions and graphs within nodes
  int64_t unrolled_ = 0, unrolled_bytes_ = 0;
  int depth_ = 0;

  const NodeProto* node_ = nullptr;
  std::string name_, prefix_;
  mutable std::set<std::string> asked_;
};

bool IsOwnDomain(const std::string& domain);
std::string FullName(const NodeProto& node);  // of the operator, with a domain that is not ONNX' own
std::string NameOf(const NodeProto& node);    // its own, or that of its first output
int64_t OwnOpset(const google::protobuf::RepeatedPtrField<OperatorSetIdProto>& sets);  // 0: it is not said
// The row for an operator by its full name, in an opset of ONNX' own domain; null if there is none.
const ImportRow* FindImport(const std::string& op, int64_t opset);

void CountUses(const google::protobuf::RepeatedPtrField<NodeProto>& nodes, int weight, Uses* uses);

// --- What several families use.
using SymbolFn = std::function<Symbol(const Symbol& x, const std::string& name)>;
ImportFn Unary(const SymbolFn& f);
// Of one extent that is not known, the rest; of more than one a Reshape cannot be made, and this throws.
bool CanReshapeTo(const PartialExtents& extents);
Symbol ReshapeTo(const Symbol& x, const PartialExtents& extents, const std::string& name = {});
// The attributes of a convolution, by the weight that is this input; `bias`: -1 if there is none.
ConvolutionAttrs ConvolutionAttrsOf(Importer& im, int weight, int bias);
PoolingAttrs PoolingAttrsOf(const Importer& im, PoolType type);
// A scale or a zero point. One for all may be a list of one: writers have the scale of a bias so, and its zero point as
// a number.
Symbol Step(Importer& im, int input);
// With new axes of extent 1.
Symbol Unsqueezed(Importer& im, const Symbol& x, std::vector<int64_t> axes, const std::string& name = {});
// The product of extents; no value if that is unknown or not even growing with the batch.
std::optional<Extent> Product(std::span<const std::optional<Extent>> extents);

}  // namespace bindery::onnx
