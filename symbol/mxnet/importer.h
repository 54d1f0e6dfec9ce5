// The walk over a graph's nodes, and what the function that imports one of them may ask and say. One function per
// operator of MXNet, in files by family (import_*.cc), in tables by operator.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "symbol/attrs.h"
#include "symbol/mxnet/json_reader.h"
#include "symbol/mxnet/mxnet.h"
#include "symbol/ops.h"
#include "symbol/symbol.h"

namespace bindery::mxnet {

class Importer;
using ImportFn = std::function<void(Importer&)>;
struct ImportRow {
  const char* op;
  ImportFn import;
};
std::span<const ImportRow> ElementwiseImports();
std::span<const ImportRow> IndexImports();
std::span<const ImportRow> LossImports();
std::span<const ImportRow> NnImports();
std::span<const ImportRow> RecurrentImports();
std::span<const ImportRow> ReduceImports();
std::span<const ImportRow> ScalarImports();
std::span<const ImportRow> ShapeImports();
const ImportRow* FindImport(const std::string& op);  // null if there is none

// Attributes that MXNet's attribute scopes give to any node: "__lr_mult__", or "lr_mult" as it was called before 0.9.
bool IsAnnotation(const std::string& key);
// What they say here, of a variable and of other nodes.
VariableOptions OptionsOf(const JsonNode& variable);
Annotations AnnotationsOf(const JsonNode& node);
// Before 0.9 an operator's node says what is for its variables: "weight_lr_mult" for NAME_weight. Moves it there.
void MoveAnnotations(JsonGraph* graph);

struct Piece {
  std::string name;
  Shape shape;  // extents may be unknown where there is no value
};

class Importer {
 public:
  Importer(JsonGraph graph, MxnetParams params) : graph_(std::move(graph)), params_(std::move(params)) {}
  Model Run();

  // --- The node at hand. Everything throws ModelError, to which the node is added.
  const std::string& op() const { return node_->op; }
  const std::string& name() const { return node_->name; }
  int64_t version() const { return graph_.version; }

  // Attributes, which are texts: "(3, 3)", "True", "64". "None" is as if it were not there. One that nobody asks for is
  // an error. Without `otherwise` they are required.
  bool Has(const char* key) const { return Find(key) != nullptr; }
  bool IsNone(const char* key) const;  // does it say "None"?
  int64_t Int(const char* key, std::optional<int64_t> otherwise = {}) const;
  double Float(const char* key, std::optional<double> otherwise = {}) const;
  bool Flag(const char* key, bool otherwise = false) const;
  std::string String(const char* key, const std::string& otherwise) const;
  std::vector<int64_t> Ints(const char* key) const;                   // empty if absent; "3" is one
  std::vector<std::optional<int64_t>> Places(const char* key) const;  // of which some may be None
  DType Type(const char* key, DType otherwise = DType::kFloat32) const;
  template <class E>
  E Enum(const char* key, E otherwise) const {  // one of our names, which are MXNet's where this is asked
    return static_cast<E>(NumberOf(key, static_cast<int>(otherwise), EnumNames(static_cast<E*>(nullptr))));
  }
  void Ignore(std::initializer_list<const char*> keys) const { asked_.insert(keys.begin(), keys.end()); }
  // Throws unless the attribute is absent or one of these.
  void Expect(const char* key, std::initializer_list<const char*> values) const;

  // Inputs. Files before 0.9 leave auxiliary states out: they become variables NAME_<input_name>.
  int num_inputs() const { return static_cast<int>(node_->inputs.size()); }
  Symbol In(int input, const char* input_name = "");
  std::vector<Symbol> AllInputs();
  // A parameter that our layer has in other pieces: the variable leaves the graph, and variables of these pieces, which
  // follow one another in its value, take its place, with its annotations. Its value, if it is there, has as many
  // elements.
  std::vector<Symbol> Split(const Symbol& parameter, const std::vector<Piece>& pieces);
  const HostTensor* ValueOf(const std::string& variable) const;  // of a parameter; null if it is not there

  // Outputs, in order; all of a symbol's.
  void Out(const Symbol& outputs);
  void Out(const std::vector<Symbol>& outputs);

  // So many nodes are made in place of this one, of its name and annotations. Throws if that is too much.
  void Spend(int64_t nodes) { Spend(nodes, AnnotationsOf(*node_)); }

 private:
  const std::string* Find(const char* key) const;
  const std::string& Required(const char* key) const;
  int NumberOf(const char* key, int otherwise, std::span<const EnumName> names) const;
  void CheckOperators() const;
  void ImportVariable();
  void ImportNode();
  void CheckAttributes() const;
  Symbol ValueAt(const JsonEntry& entry, const std::string& who) const;
  void Spend(int64_t nodes, const Annotations& annotations);
  void TakeValues(Model* model);

  JsonGraph graph_;
  MxnetParams params_;
  const JsonNode* node_ = nullptr;
  std::vector<std::vector<Symbol>> values_;  // per node, its outputs
  std::set<std::string> variables_;
  std::map<std::string, std::vector<Symbol>> pieces_;  // of what was split, by its name
  int64_t spent_ = 0, spent_bytes_ = 0;
  mutable std::set<std::string, std::less<>> asked_;
};

// --- What several families use.
using SymbolFn = std::function<Symbol(const Symbol& x, const std::string& name)>;
ImportFn Unary(SymbolFn f);
ImportFn Binary(const BinaryFunction& f);
// 1 and 0 of another value's type for what is true and false: MXNet's comparisons give numbers.
Symbol AsNumbers(const Symbol& truth, const Symbol& like, const std::string& name);
Symbol Indices(const std::vector<int64_t>& values);  // a constant, of one axis
// The symbol without its axes, as MXNet has it: of one axis and one element.
Symbol AsVector(const Symbol& scalar, const std::string& name);

}  // namespace bindery::mxnet
