#include "symbol/onnx/importer.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <new>
#include <string_view>

#include "base/names.h"
#include "symbol/infer.h"
#include "symbol/model/source.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

constexpr int64_t kNewestOpset = 23;
constexpr int64_t kAnyBatch = 4;  // where the file has none; not 1, which broadcasts
constexpr int64_t kMaxBatch = int64_t{1} << 40;
constexpr size_t kMaxListedNodes = 3;  // per operator

bool IsOwnDomain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

std::string FullName(const NodeProto& node) {
  return IsOwnDomain(node.domain()) ? node.op_type() : node.domain() + "." + node.op_type();
}

std::string NameOf(const NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : node.op_type();
}

bool SaysBatch(const std::string& param) {
  std::string lower = param;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "n" || lower.starts_with("batch");
}

using Rows = std::map<std::string, std::map<int64_t, const ImportRow*>>;
const Rows& AllRows() {
  static const Rows rows = [] {
    Rows all;
    for (const auto& table : {ElementwiseImports(), IndexImports(), LossImports(), NnImports(), NormImports(),
                              RandomImports(), ReduceImports(), SequenceImports(), ShapeImports()}) {
      for (const ImportRow& row : table) all[row.op][row.since] = &row;
    }
    return all;
  }();
  return rows;
}

}  // namespace

const ImportRow* FindImport(const std::string& op, int64_t opset) {
  const auto rows = AllRows().find(op);
  if (rows == AllRows().end()) return nullptr;
  const auto after = rows->second.upper_bound(opset);
  return after == rows->second.begin() ? nullptr : std::prev(after)->second;
}

Importer::Importer(const ModelProto& model, const std::string& source, const OnnxOptions& options,
                   OnnxTensorReader* tensors, bool any_batch)
    : model_(model), source_(source), options_(options), tensors_(tensors), any_batch_(any_batch) {
  for (const OperatorSetIdProto& set : model.opset_import()) {
    if (IsOwnDomain(set.domain())) opset_ = set.version();
  }
  if (opset_ < 1 || opset_ > kNewestOpset) {
    Fail(fmt::format("it is of opset {}, but 1 to {} can be read", opset_, kNewestOpset));
  }
  if (model.graph().sparse_initializer_size() > 0) Fail("sparse initializers cannot be read");
}

void Importer::Fail(const std::string& message) const { Throw<ModelError>("{}: {}", source_, message); }

Model Importer::Run() {
  CheckOperators();
  for (const TensorProto& tensor : model_.graph().initializer()) {
    try {
      auto value = std::make_shared<const HostTensor>(tensors_->Read(tensor));
      Define(tensor.name(), {.constant = std::move(value), .is_initializer = true});
    } catch (const Error& error) {
      Fail(fmt::format("initializer {}: {}", QuotedName(tensor.name()), error.message()));
    }
  }
  DeclareInputs();
  for (const NodeProto& node : model_.graph().node()) {
    for (const std::string& input : node.input()) ++uses_[input];
  }
  for (const ValueInfoProto& output : model_.graph().output()) ++uses_[output.name()];
  for (int i = 0; i < model_.graph().node_size(); ++i) ImportNode(i);

  std::vector<Symbol> outputs;
  NodeProto heads;  // as if a node read them: it makes constants, too
  node_ = &heads;
  for (const ValueInfoProto& output : model_.graph().output()) {
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
      if (auto parameter = parameters_.extract(name)) values->insert(std::move(parameter));
    }
  };
  take(model.symbol.ListAuxiliaryStates(), &model.aux);
  take(model.symbol.ListArguments(), &model.params);
  for (const StringStringEntryProto& entry : model_.metadata_props()) model.metadata[entry.key()] = entry.value();
  return model;
}

// All that are not known at once, each with nodes that use it.
void Importer::CheckOperators() const {
  struct Missing {
    std::string nodes;
    size_t count = 0;
  };
  std::map<std::string, Missing> missing;
  for (const NodeProto& node : model_.graph().node()) {
    if (IsOwnDomain(node.domain()) && FindImport(node.op_type(), opset_) != nullptr) continue;
    Missing& entry = missing[FullName(node)];
    if (++entry.count <= kMaxListedNodes) {
      entry.nodes += (entry.nodes.empty() ? "" : ", ") + QuotedName(NameOf(node));
    }
  }
  if (missing.empty()) return;
  std::string list;
  for (const auto& [op, entry] : missing) {
    const size_t more = entry.count - std::min(entry.count, kMaxListedNodes);
    list += fmt::format("{}{} ({}{})", list.empty() ? "" : "; ", op, entry.nodes,
                        more > 0 ? fmt::format(" and {} more", more) : "");
  }
  Fail(fmt::format("operators of opset {} that cannot be imported, with the nodes that use them: {}", opset_, list));
}

void Importer::DeclareInputs() {
  std::vector<const ValueInfoProto*> inputs;
  for (const ValueInfoProto& input : model_.graph().input()) {
    if (!values_.contains(input.name())) inputs.push_back(&input);  // up to IR 3 initializers are inputs, too
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
    if (batch.dim_value() > kMaxBatch) Fail(fmt::format("a batch of {} is too large", batch.dim_value()));
    if (batch.dim_value() > 0) file_batch_ = batch.dim_value();
    break;
  }
  types_.emplace(file_batch_.value_or(kAnyBatch), any_batch_);
  for (const ValueInfoProto* input : inputs) {
    try {
      DeclareInput(*input);
    } catch (const Error& error) {
      Fail(fmt::format("input {}: {}", QuotedName(input->name()), error.message()));
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

void Importer::ImportNode(int index) {
  node_ = &model_.graph().node(index);
  name_ = NameOf(*node_);
  asked_.clear();
  try {
    const NameScope names(name_ + "_", false);
    std::optional<Numbers> numbers = Fold(*this);
    if (numbers && IsFixed(*numbers)) {
      OutFixed(*numbers);
    } else {
      FindImport(op(), opset_)->import(*this);
      if (numbers && Wanted(0)) values_.at(node_->output(0)).numbers = std::move(numbers);
    }
    for (const AttributeProto& attribute : node_->attribute()) {
      if (!asked_.contains(attribute.name())) {
        Throw<ModelError>("attribute {} is not known", QuotedName(attribute.name()));
      }
    }
    for (const std::string& output : node_->output()) {
      if (uses_.contains(output) && !output.empty() && !values_.contains(output)) {
        Throw<ModelError>("its output {} cannot be had", QuotedName(output));
      }
    }
  } catch (const Error& error) {
    Fail(fmt::format("node {}, {} {}: {}", index, op(), QuotedName(name_), error.message()));
  }
}

void Importer::Define(const std::string& name, Value value) {
  if (name.empty()) Throw<ModelError>("a value has no name");
  if (!values_.emplace(name, std::move(value)).second) {
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
  for (const auto& [op, rows] : onnx::AllRows()) {
    for (const auto& [since, row] : rows) imports[op].push_back(static_cast<int>(since));
  }
  return imports;
}

}  // namespace bindery
