#include "symbol/onnx/importer.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <new>
#include <string_view>

#include "base/names.h"
#include "symbol/infer.h"
#include "symbol/model/source.h"
#include "symbol/onnx/operator_list.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

constexpr int64_t kNewestOpset = 28;
constexpr int64_t kAnyBatch = 4;  // where the file has none; not 1, which broadcasts
constexpr int64_t kMaxBatch = int64_t{1} << 40;

bool SaysBatch(const std::string& param) {
  std::string lower = param;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "n" || lower.starts_with("batch");
}

using ImportTable = std::map<std::string, std::map<int64_t, const ImportRow*>>;
const ImportTable& ImportRows() {
  static const ImportTable rows = [] {
    ImportTable all;
    for (const auto& table : {AttentionImports(), ControlImports(), ElementwiseImports(), FusedImports(),
                              IndexImports(), LossImports(), NnImports(), NormImports(), QuantizeImports(),
                              RandomImports(), ReduceImports(), SequenceImports(), ShapeImports()}) {
      for (const ImportRow& row : table) all[row.op][row.since] = &row;
    }
    return all;
  }();
  return rows;
}

}  // namespace

bool IsOwnDomain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

std::string FullName(const NodeProto& node) {
  return IsOwnDomain(node.domain()) ? node.op_type() : node.domain() + "." + node.op_type();
}

std::string NameOf(const NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : node.op_type();
}

int64_t OwnOpset(const google::protobuf::RepeatedPtrField<OperatorSetIdProto>& sets) {
  int64_t opset = 0;
  for (const OperatorSetIdProto& set : sets) {
    if (IsOwnDomain(set.domain())) opset = set.version();
  }
  return opset;
}

const ImportRow* FindImport(const std::string& op, int64_t opset) {
  const auto rows = ImportRows().find(op);
  if (rows == ImportRows().end()) return nullptr;
  const auto after = rows->second.upper_bound(opset);
  return after == rows->second.begin() ? nullptr : std::prev(after)->second;
}

Importer::Importer(const ModelProto& model, const std::string& source, const OnnxOptions& options,
                   OnnxTensorReader* tensors, bool any_batch)
    : model_(model), source_(source), options_(options), tensors_(tensors), any_batch_(any_batch) {
  opset_ = OwnOpset(model.opset_import());
  const auto check = [&](const std::string& what, int64_t opset) {
    if (opset >= 1 && opset <= kNewestOpset) return;
    Fail(fmt::format("{} is of opset {}, but 1 to {} can be read", what, opset, kNewestOpset));
  };
  // A model of other domains only has no opset of ONNX; its operators are named below.
  if (opset_ != 0 || model.opset_import().empty()) check("it", opset_);
  for (const FunctionProto& function : model.functions()) {
    check("function " + QuotedName(function.name()), OpsetOf(function));
    functions_.emplace(std::tuple(function.domain(), function.name(), function.overload()), &function);
  }
  if (model.graph().sparse_initializer_size() > 0) Fail("sparse initializers cannot be read");
}

void Importer::Fail(const std::string& message) const { Throw<ModelError>("{}: {}", source_, message); }

Model Importer::Run() {
  CheckOperators();
  const GraphProto& graph = model_.graph();
  graph_.uses = &uses_;
  CountUses(graph.node(), 1, &uses_);
  for (const ValueInfoProto& output : graph.output()) ++uses_[output.name()];
  try {
    ReadInitializers(graph);
    DeclareInputs();
    ImportNodes(graph.node());
  } catch (const Error& error) {
    Fail(error.message());
  }

  std::vector<Symbol> outputs;
  NodeProto heads;  // as if a node read them: it makes constants, too
  node_ = &heads;
  for (const ValueInfoProto& output : graph.output()) {
    heads.add_input(output.name());
    try {
      const Symbol value = In(heads.input_size() - 1);
      outputs.push_back(value.entry().node->is_variable() ? Identity(value, output.name()) : value);
    } catch (const Error& error) {
      Fail(fmt::format("output {}: {}", QuotedName(output.name()), error.message()));
    }
  }
  if (outputs.empty()) Fail("its graph has no outputs");
  Model model{.symbol = Group(outputs)};
  const auto take = [&](const std::vector<std::string>& names, HostTensorMap* values) {
    for (const std::string& name : names) {
      if (const auto found = parameters_.find(name); found != parameters_.end()) values->emplace(name, *found->second);
    }
  };
  take(model.symbol.ListAuxiliaryStates(), &model.aux);
  take(model.symbol.ListArguments(), &model.params);
  for (const StringStringEntryProto& entry : model_.metadata_props()) model.metadata[entry.key()] = entry.value();
  return model;
}

// All that are not known at once, each with nodes that use it; those of graphs within nodes and of functions, too.
void Importer::CheckOperators() const {
  OperatorList missing;
  std::set<const FunctionProto*> seen;
  std::vector<const FunctionProto*> called;  // in turn: a file of any size may have each call the next
  const std::function<void(const Nodes&, int64_t)> check = [&](const Nodes& nodes, int64_t opset) {
    for (const NodeProto& node : nodes) {
      const bool is_known = FindImport(FullName(node), opset) != nullptr;
      const FunctionProto* function = is_known ? nullptr : FindFunction(node);
      if (!is_known && function == nullptr) missing.Add(FullName(node), NameOf(node));
      if (function != nullptr && seen.insert(function).second) called.push_back(function);
      for (const AttributeProto& attribute : node.attribute()) check(attribute.g().node(), opset);
    }
  };
  check(model_.graph().node(), opset_);
  for (size_t i = 0; i < called.size(); ++i) check(called[i]->node(), OpsetOf(*called[i]));
  if (missing.empty()) return;
  Fail(fmt::format("operators of opset {} that cannot be imported, with the nodes that use them: {}", opset_,
                   missing.ToString()));
}

void Importer::DeclareInputs() {
  std::vector<const ValueInfoProto*> inputs;
  for (const ValueInfoProto& input : model_.graph().input()) {
    if (!graph_.values.contains(input.name())) inputs.push_back(&input);  // up to IR 3 initializers are inputs, too
  }
  for (const ValueInfoProto* input : inputs) {
    const auto& shape = input->type().tensor_type().shape();
    if (shape.dim_size() == 0) continue;
    for (int axis = shape.dim_size() - 1; axis >= 0; --axis) {
      if (SaysBatch(shape.dim(axis).dim_param())) batch_axis_ = axis;
    }
    const auto& batch = shape.dim(batch_axis_);
    batch_input_ = input->name();
    batch_param_ = batch.dim_param();
    if (batch.dim_value() > kMaxBatch) Throw<ModelError>("a batch of {} is too large", batch.dim_value());
    if (batch.dim_value() > 0) file_batch_ = batch.dim_value();
    break;
  }
  types_.emplace(file_batch_.value_or(kAnyBatch), any_batch_);
  for (const ValueInfoProto* input : inputs) {
    try {
      DeclareInput(*input);
    } catch (const Error& error) {
      Throw<ModelError>("input {}: {}", QuotedName(input->name()), error.message());
    }
  }
}

void Importer::DeclareInput(const ValueInfoProto& input) {
  if (!input.type().has_tensor_type()) Throw<ModelError>("it is not a tensor");
  const auto& type = input.type().tensor_type();
  Value value{.is_input = true};
  DType dtype = onnx::DTypeOf(type.elem_type());
  std::optional<Shape> shape;
  std::vector<int> batch_axes;
  const auto known = options_.known.find(input.name());
  const auto given = options_.shapes.find(input.name());
  if (known != options_.known.end()) {
    value.constant = std::make_shared<const HostTensor>(known->second);
    dtype = known->second.dtype();
    shape = known->second.shape();
  } else if (given != options_.shapes.end()) {
    shape = given->second;
  } else if (type.has_shape()) {
    if (type.shape().dim_size() > Shape::kMaxRank) Throw<ModelError>("it has {} axes", type.shape().dim_size());
    shape.emplace();
    for (int axis = 0; axis < type.shape().dim_size(); ++axis) {
      const auto& dim = type.shape().dim(axis);
      const bool is_first = input.name() == batch_input_ && axis == batch_axis_;
      const bool is_same = dim.has_dim_value() ? axis == 0 && dim.dim_value() == file_batch_
                                               : !batch_param_.empty() && dim.dim_param() == batch_param_;
      if (any_batch_ && (is_first || is_same)) batch_axes.push_back(axis);
      const bool is_known = dim.has_dim_value() && dim.dim_value() > 0 && !(any_batch_ && (is_first || is_same));
      shape = shape->Insert(axis, is_known ? dim.dim_value() : kUnknownDim);
      constexpr size_t kLongest = 500;  // of what is told
      if (is_known || (any_batch_ && (is_first || is_same)) || open_.size() > kLongest) continue;
      const std::string name = dim.dim_param().empty() ? "" : fmt::format(" ({})", QuotedName(dim.dim_param()));
      open_ += fmt::format("{}axis {}{} of input {}", open_.empty() ? "" : ", ", axis, name, QuotedName(input.name()));
    }
  }
  VariableOptions options{.shape = shape, .dtype = dtype};
  if (!batch_axes.empty() && batch_axes[0] != 0) {  // the group takes axis 0 for the batch's, unless told otherwise
    std::string layout(static_cast<size_t>(shape->rank()), 'C');
    layout[static_cast<size_t>(batch_axes[0])] = 'N';
    options.layout = layout;
  }
  value.symbol = Variable(input.name(), options);
  types_->Declare(value.symbol, dtype, shape, batch_axes);
  variables_.Next(input.name());
  Define(input.name(), std::move(value));
  for (const int axis : batch_axes) shape->Set(axis, file_batch_.value_or(kAnyBatch) + 1);
  if (!batch_axes.empty()) other_batch_.emplace(input.name(), *shape);
}

void Importer::CheckOtherBatch(const Symbol& symbol) const {
  ShapeMap shapes;
  for (const std::string& name : symbol.ListArguments()) {
    if (const auto found = other_batch_.find(name); found != other_batch_.end()) shapes.insert(*found);
  }
  if (!shapes.empty()) InferShapesPartial(symbol, shapes);
}

void Importer::ImportNodes(const Nodes& nodes) {
  for (int index = 0; index < nodes.size(); ++index) {
    const NodeProto& node = nodes[index];
    const std::string name = prefix_ + NameOf(node);
    try {
      CheckName(NameOf(node));
      ImportNode(node, name);
    } catch (const Error& error) {
      Throw<ModelError>("node {}, {} {}: {}", index, FullName(node), QuotedName(name), error.message());
    }
  }
}

void Importer::ImportNode(const NodeProto& node, const std::string& name) {
  node_ = &node;
  name_ = name;
  asked_.clear();
  const NameScope names(name_ + "_", false);
  const ImportRow* row = FindImport(FullName(node), opset_);
  // A constant that is the same whenever it is met is one value.
  const bool is_shared = depth_ > 0 && op() == "Constant" &&
                         std::ranges::all_of(node.attribute(), [](const auto& a) { return a.ref_attr_name().empty(); });
  if (const auto met = constants_.find(&node); is_shared && met != constants_.end()) return OutValue(0, met->second);
  if (row == nullptr) {
    Call(*FindFunction(node));
  } else if (std::optional<Numbers> numbers = Fold(*this); numbers && IsFixed(*numbers)) {
    OutFixed(*numbers);
  } else {
    row->import(*this);
    if (numbers && Wanted(0)) {
      Value& value = *frame_->values.at(node.output(0));
      if (!value.symbol.empty()) types_->DeclareNumbers(value.symbol, numbers->values);
      value.numbers = std::move(numbers);
    }
  }
  if (is_shared && Wanted(0)) constants_[&node] = frame_->values.at(node.output(0));
  for (const AttributeProto& attribute : node.attribute()) {
    if (!asked_.contains(attribute.name())) {
      Throw<ModelError>("attribute {} is not known", QuotedName(attribute.name()));
    }
  }
  for (const std::string& output : node.output()) {
    if (!output.empty() && ReadersOf(output) > 0 && !frame_->values.contains(output)) {
      Throw<ModelError>("its output {} cannot be had", QuotedName(output));
    }
  }
}

void Importer::Define(const std::string& name, ValuePtr value) {
  if (name.empty()) Throw<ModelError>("a value has no name");
  CheckName(name);
  if (value->name.empty()) value->name = name;
  if (!frame_->values.emplace(name, std::move(value)).second) {
    Throw<ModelError>("{} is defined twice", QuotedName(name));
  }
}

}  // namespace bindery::onnx

namespace bindery {

Model ParseOnnx(std::string_view bytes, const std::string& source_name, const std::string& folder,
                const OnnxOptions& options, const ModelLimits& limits) {
  const AttrScope no_annotations({}, false);
  try {
    const onnx::ModelProto message = onnx::ReadMessage(bytes, source_name, limits);
    const bool any_batch = options.known.empty() && options.shapes.empty();
    onnx::OnnxTensorReader tensors(limits, folder);
    onnx::Importer importer(message, source_name, options, &tensors, any_batch);
    try {
      Model model = importer.Run();
      if (any_batch) importer.CheckOtherBatch(model.symbol);
      return model;
    } catch (const Error&) {
      // Perhaps the file fits one batch alone. If not, the first error tells more.
      if (!any_batch || !importer.file_batch()) throw;
      const std::exception_ptr first = std::current_exception();
      try {
        onnx::OnnxTensorReader again(limits, folder);
        return onnx::Importer(message, source_name, options, &again, false).Run();
      } catch (const Error&) {
        std::rethrow_exception(first);
      }
    }
  } catch (const std::bad_alloc&) {
    Throw<ModelError>("{}: the model does not fit in memory", source_name);
  } catch (const ShapeError& error) {
    Throw<ModelError>("{}: {}", source_name, error.message());
  }
}

std::map<std::string, std::vector<int>> OnnxImports() {
  std::map<std::string, std::vector<int>> imports;
  for (const auto& [op, rows] : onnx::ImportRows()) {
    for (const auto& [since, row] : rows) imports[op].push_back(static_cast<int>(since));
  }
  return imports;
}

}  // namespace bindery
