#include "symbol/mxnet/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/names.h"
#include "symbol/model/source.h"
#include "symbol/onnx/operator_list.h"

namespace bindery::mxnet {
namespace {

constexpr int64_t kSaysStates = 900;  // since this version, files have auxiliary states among the inputs
// Than the file has, where one of its nodes is many of ours; and bytes of their names and annotations.
constexpr int64_t kMaxMoreNodes = 100'000, kMaxMoreBytes = int64_t{1} << 26;

using Rows = std::map<std::string, const ImportRow*>;
const Rows& AllRows() {
  static const Rows rows = [] {
    Rows all;
    for (const auto& table : {ElementwiseImports(), IndexImports(), LossImports(), NnImports(), RecurrentImports(),
                              ReduceImports(), ScalarImports(), ShapeImports()}) {
      for (const ImportRow& row : table) Check(all.emplace(row.op, &row).second, "an operator is in one table, once");
    }
    return all;
  }();
  return rows;
}

bool IsVariable(const JsonNode& node) { return node.op == "null"; }

}  // namespace

const ImportRow* FindImport(const std::string& op) {
  const auto row = AllRows().find(op);
  return row == AllRows().end() ? nullptr : row->second;
}

Model Importer::Run() {
  CheckOperators();
  MoveAnnotations(&graph_);
  values_.resize(graph_.nodes.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    node_ = &graph_.nodes[i];
    try {
      IsVariable(*node_) ? ImportVariable() : ImportNode();
    } catch (const Error& error) {
      Throw<ModelError>("node {}, {} {}: {}", i, QuotedName(op()), QuotedName(name()), error.message());
    }
  }
  std::vector<Symbol> heads;
  for (const JsonEntry& head : graph_.heads) {
    const Symbol value = ValueAt(head, "a head");
    heads.push_back(value.entry().node->is_variable() ? Identity(value) : value);
  }
  if (heads.empty()) Throw<ModelError>("its graph has no heads");
  Model model{.symbol = Group(heads)};
  TakeValues(&model);
  return model;
}

// All that are not known at once, each with nodes that use it.
void Importer::CheckOperators() const {
  onnx::OperatorList missing;
  for (const JsonNode& node : graph_.nodes) {
    if (!IsVariable(node) && FindImport(node.op) == nullptr) missing.Add(QuotedName(node.op), node.name);
  }
  if (missing.empty()) return;
  Throw<ModelError>("operators of MXNet that cannot be imported, with the nodes that use them: {}", missing.ToString());
}

void Importer::ImportVariable() {
  if (!node_->inputs.empty()) Throw<ModelError>("a variable has no inputs");
  if (name().empty()) Throw<ModelError>("a variable needs a name");
  if (!variables_.insert(name()).second) Throw<ModelError>("another variable has this name");
  VariableOptions options = OptionsOf(*node_);
  if (const HostTensor* value = ValueOf(name())) {
    if (!options.shape) options.shape = value->shape();
    if (!options.dtype) options.dtype = value->dtype();
  }
  values_[static_cast<size_t>(node_ - graph_.nodes.data())] = {Variable(name(), options)};
}

void Importer::ImportNode() {
  asked_.clear();
  const NameScope names(name() + "_", false);
  const AttrScope annotations(AnnotationsOf(*node_), false);
  FindImport(op())->import(*this);
  CheckAttributes();
}

void Importer::CheckAttributes() const {
  for (const auto& [key, value] : node_->attrs) {
    if (!asked_.contains(key) && !IsAnnotation(key)) {
      Throw<ModelError>("attribute {} is not known", QuotedName(key));
    }
  }
}

Symbol Importer::ValueAt(const JsonEntry& entry, const std::string& who) const {
  const std::vector<Symbol>& outputs = values_[static_cast<size_t>(entry.node)];
  if (entry.output >= std::ssize(outputs)) {
    const JsonNode& node = graph_.nodes[static_cast<size_t>(entry.node)];
    Throw<ModelError>("{}: output {} of {} {} cannot be had", who, entry.output, QuotedName(node.op),
                      QuotedName(node.name));
  }
  return outputs[static_cast<size_t>(entry.output)];
}

Symbol Importer::In(int input, const char* input_name) {
  if (input < num_inputs()) {
    return ValueAt(node_->inputs[static_cast<size_t>(input)], fmt::format("input {}", input));
  }
  if (graph_.version >= kSaysStates || *input_name == '\0') Throw<ModelError>("input {} is missing", input);
  const std::string own = name() + "_" + input_name;
  if (!variables_.insert(own).second) Throw<ModelError>("another variable is called {}", QuotedName(own));
  return Variable(own);
}

std::vector<Symbol> Importer::AllInputs() {
  std::vector<Symbol> inputs;
  for (int i = 0; i < num_inputs(); ++i) inputs.push_back(In(i));
  return inputs;
}

const HostTensor* Importer::ValueOf(const std::string& variable) const {
  for (const HostTensorMap* values : {&params_.args, &params_.aux, &params_.others}) {
    if (const auto found = values->find(variable); found != values->end()) return &found->second;
  }
  return nullptr;
}

std::vector<Symbol> Importer::Split(const Symbol& parameter, const std::vector<Piece>& pieces) {
  const std::string whole = parameter.name();
  std::vector<Symbol>& made = pieces_[whole];
  if (!made.empty()) {  // by another node
    const auto is_same = [](const Symbol& a, const Piece& b) { return a.name() == b.name; };
    if (!std::ranges::equal(made, pieces, is_same)) Throw<ModelError>("{} is split twice", QuotedName(whole));
    return made;
  }
  const Node& node = *parameter.entry().node;
  Spend(std::ssize(pieces), node.annotations());
  const HostTensor* value = ValueOf(whole);
  Annotations annotations = node.annotations();
  annotations.erase("init");  // of the whole
  // By its name MXNet does not decay it, as it does weights.
  if (!whole.ends_with("_weight") && !whole.ends_with("_gamma")) annotations.emplace("wd_mult", "0");
  int64_t next = 0;  // byte
  for (const Piece& piece : pieces) {
    if (!variables_.insert(piece.name).second) {
      Throw<ModelError>("another variable is called {}", QuotedName(piece.name));
    }
    made.push_back(
        Variable(piece.name, {.shape = piece.shape, .dtype = node.declared_dtype, .annotations = annotations}));
    if (value == nullptr) continue;
    if (piece.shape.Elements() > value->elements() - next / SizeOf(value->dtype())) {
      Throw<ModelError>("{} has {} elements, too few for its pieces", QuotedName(whole), value->elements());
    }
    HostTensor part(value->dtype(), piece.shape);
    std::memcpy(part.raw(), static_cast<const std::byte*>(value->raw()) + next, static_cast<size_t>(part.bytes()));
    next += part.bytes();
    if (!params_.args.emplace(piece.name, std::move(part)).second) {
      Throw<ModelError>("another value is called {}", QuotedName(piece.name));
    }
  }
  return made;
}

void Importer::Out(const Symbol& outputs) {
  std::vector<Symbol> list;
  for (int i = 0; i < outputs.size(); ++i) list.push_back(outputs[i]);
  Out(list);
}

void Importer::Out(const std::vector<Symbol>& outputs) {
  values_[static_cast<size_t>(node_ - graph_.nodes.data())] = outputs;
}

void Importer::Spend(int64_t nodes, const Annotations& annotations) {
  int64_t each = std::ssize(name());
  for (const auto& [key, value] : annotations) each += std::ssize(key) + std::ssize(value);
  nodes = std::max<int64_t>(nodes, 0);
  if (nodes > kMaxMoreNodes - spent_ || nodes * each > kMaxMoreBytes - spent_bytes_) {
    Throw<ModelError>("it stands for too many nodes, or for nodes of too many bytes");
  }
  spent_ += nodes;
  spent_bytes_ += nodes * each;
}

// What was split is gone; all else stays, so that who uses the model says what does not fit.
void Importer::TakeValues(Model* model) {
  for (const auto& [whole, made] : pieces_) {
    for (HostTensorMap* values : {&params_.args, &params_.aux, &params_.others}) values->erase(whole);
  }
  const std::vector<std::string> states = model->symbol.ListAuxiliaryStates();
  const std::set<std::string> is_state(states.begin(), states.end());
  for (HostTensorMap* values : {&params_.args, &params_.aux, &params_.others}) {
    while (!values->empty()) {
      auto node = values->extract(values->begin());
      HostTensorMap& to = is_state.contains(node.key()) ? model->aux : model->params;
      to.insert(std::move(node));
    }
  }
}

// --- What several families use.

ImportFn Unary(SymbolFn f) {
  return [f = std::move(f)](Importer& im) { im.Out(f(im.In(0), im.name())); };
}

ImportFn Binary(const BinaryFunction& f) {
  return [f](Importer& im) { im.Out(f(im.In(0), im.In(1), im.name())); };
}

Symbol AsNumbers(const Symbol& truth, const Symbol& like, const std::string& name) {
  return Where(truth, FullLike(like, {1}), 0.0, name);
}

Symbol Indices(const std::vector<int64_t>& values) {
  HostTensor list(DType::kInt64, {std::ssize(values)});
  std::ranges::copy(values, list.data<int64_t>().begin());
  return Constant(std::move(list));
}

Symbol AsVector(const Symbol& scalar, const std::string& name) { return Reshape(scalar, {.shape = {1}}, name); }

}  // namespace bindery::mxnet

namespace bindery {

Model ParseMxnet(std::string_view json, MxnetParams params, const std::string& source_name, const ModelLimits& limits) {
  const AttrScope no_annotations({}, false);
  try {
    mxnet::JsonGraph graph = mxnet::ReadJsonGraph(json, source_name, limits);
    try {
      return mxnet::Importer(std::move(graph), std::move(params)).Run();
    } catch (const Error& error) {
      Throw<ModelError>("{}: {}", source_name, error.message());
    }
  } catch (const std::bad_alloc&) {
    Throw<ModelError>("{}: the model does not fit in memory", source_name);
  }
}

std::vector<std::string> MxnetImports() {
  std::vector<std::string> names;
  for (const auto& [op, row] : mxnet::AllRows()) names.push_back(op);
  return names;
}

}  // namespace bindery
