#include "symbol/onnx/exporter.h"

#include <algorithm>

#include "symbol/model/source.h"
#include "symbol/onnx/onnx.h"
#include "symbol/onnx/operator_list.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"
#include "symbol/passes/passes.h"

namespace bindery::onnx {
namespace {

constexpr int kIrVersion = 8;           // that of opset 17's time
constexpr int64_t kInlineBytes = 1024;  // of a parameter, though others are outside

using ExportTable = std::map<std::string, const ExportRow*, std::less<>>;
const ExportTable& ExportRows() {
  static const ExportTable rows = [] {
    ExportTable all;
    for (const auto& table :
         {ArrangeExports(), AttentionExports(), BitExports(), ElementwiseExports(), IndexExports(), LossExports(),
          NnExports(), NormExports(), RandomExports(), SequenceExports(), ShapeExports()}) {
      for (const ExportRow& row : table) all[row.op] = &row;
    }
    return all;
  }();
  return rows;
}

TensorProto* Describe(const HostTensor& value, TensorProto* tensor) {
  tensor->set_data_type(NumberOf(value.dtype()));
  for (const int64_t extent : value.shape()) tensor->add_dims(extent);
  return tensor;
}
TensorProto* Fill(const HostTensor& value, TensorProto* tensor) {
  Describe(value, tensor)->set_raw_data(value.raw(), static_cast<size_t>(value.bytes()));
  return tensor;
}

}  // namespace

bool IsExported(const Node& node) {
  const auto row = ExportRows().find(node.op().name);
  return row != ExportRows().end() && (row->second->fits == nullptr || row->second->fits(node));
}

Exporter::Exporter(const Model& model, bool data_outside, bool with_extents)
    : model_(model), data_outside_(data_outside), symbol_(InferenceForm(model, with_extents)),
      graph_(Graph::Of(symbol_)), dtypes_(InferDTypes(graph_, TypesOfValues(symbol_, model).dtypes)),
      shapes_(InferPartial(graph_, TypesOfValues(symbol_, model).shapes, nullptr, std::nullopt)),
      out_(message_.mutable_graph()) {}

ModelProto Exporter::Run() {
  message_.set_ir_version(kIrVersion);
  message_.set_producer_name("bindery");
  message_.add_opset_import()->set_version(kExportOpset);
  out_->set_name("bindery");
  for (const auto& [key, value] : model_.metadata) {
    StringStringEntryProto* entry = message_.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  OperatorList missing;
  for (const NodePtr& node : graph_.nodes) {
    if (!node->is_variable() && !IsExported(*node)) missing.Add(node->op().name, node->name());
  }
  if (!missing.empty()) {
    Throw<ModelError>("operators that cannot be exported, with the nodes that use them: {}", missing.ToString());
  }
  // The names of parameters and inputs are kept; others make way.
  for (const NodePtr& node : graph_.nodes) {
    if (node->is_variable()) ExportVariable(*node);
  }
  for (index_ = 0; index_ < graph_.nodes.size(); ++index_) {
    node_ = graph_.nodes[index_];
    if (node_->is_variable()) continue;
    names_[node_.get()].resize(static_cast<size_t>(node_->num_outputs()));
    try {
      ExportRows().find(node_->op().name)->second->export_node(*this);
    } catch (const Error& error) {
      Throw<ModelError>("{}: it cannot be exported: {}", Describe(*node_), error.message());
    }
  }
  ExportOutputs();
  LeaveOutUnused();
  return std::move(message_);
}

// What was taken into another node of ONNX, and the numbers of that.
void Exporter::LeaveOutUnused() {
  std::set<std::string> read;
  for (const ValueInfoProto& output : out_->output()) read.insert(output.name());
  auto& nodes = *out_->mutable_node();
  std::vector<bool> used(static_cast<size_t>(nodes.size()));
  for (int i = nodes.size() - 1; i >= 0; --i) {
    const auto& outputs = nodes[i].output();
    used[static_cast<size_t>(i)] = std::ranges::any_of(outputs, [&](const auto& name) { return read.contains(name); });
    if (used[static_cast<size_t>(i)]) read.insert(nodes[i].input().begin(), nodes[i].input().end());
  }
  int kept = 0;
  for (int i = 0; i < nodes.size(); ++i) {
    if (used[static_cast<size_t>(i)]) nodes.SwapElements(i, kept++);
  }
  nodes.DeleteSubrange(kept, nodes.size() - kept);
  auto& tensors = *out_->mutable_initializer();
  kept = 0;
  for (int i = 0; i < tensors.size(); ++i) {
    if (read.contains(tensors[i].name())) tensors.SwapElements(i, kept++);
  }
  tensors.DeleteSubrange(kept, tensors.size() - kept);
}

void Exporter::ExportVariable(const Node& node) {
  given_.Next(node.name());
  names_[&node] = {node.name()};
  if (const HostTensor* value = ValueOf(model_, node.name())) {
    TensorProto* tensor = out_->add_initializer();
    const bool outside = data_outside_ && value->bytes() > kInlineBytes;
    (outside ? Describe(*value, tensor) : Fill(*value, tensor))->set_name(node.name());
    if (outside) tensor->set_data_location(kExternal);
    return;
  }
  ValueInfoProto* input = out_->add_input();
  input->set_name(node.name());
  FillType({graph_.nodes[static_cast<size_t>(graph_.index.at(&node))], 0}, input);
}

// Which extent is the batch's: that at the N of a layout, or at axis 0.
void Exporter::FillType(const Entry& value, ValueInfoProto* info) const {
  const auto n = static_cast<size_t>(graph_.IndexOf(value.node));
  const auto output = static_cast<size_t>(value.output);
  auto* type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(NumberOf(dtypes_[n][output]));
  const std::optional<Shape>& shape = shapes_[n][output].shape;
  if (!shape) return;
  int batch_axis = 0;
  if (value.node->is_variable()) batch_axis = std::max(AxisOfLayout(*value.node, *shape), 0);
  type->mutable_shape();
  for (int axis = 0; axis < shape->rank(); ++axis) {
    auto* dim = type->mutable_shape()->add_dim();
    if ((*shape)[axis] != kUnknownDim) {
      dim->set_dim_value((*shape)[axis]);
    } else if (axis == batch_axis) {
      dim->set_dim_param("batch");
    } else {
      dim->set_dim_param(fmt::format("{}_{}", info->name(), axis));
    }
  }
}

// Two heads may be one value, and a head may be an input; ONNX' outputs have names of their own.
void Exporter::ExportOutputs() {
  std::set<std::string> given, kept;
  for (const ValueInfoProto& input : out_->input()) kept.insert(input.name());
  for (const TensorProto& tensor : out_->initializer()) kept.insert(tensor.name());
  for (const Entry& entry : symbol_.entries()) {
    std::string name = NameOf(entry);
    if (kept.contains(name) || !given.insert(name).second) name = Add("Identity", {name});
    ValueInfoProto* output = out_->add_output();
    output->set_name(name);
    FillType(entry, output);
  }
}

// --- What export functions ask and say.

const std::string& Exporter::NameOf(const Entry& value) const {
  const std::string& name = names_.at(value.node.get())[static_cast<size_t>(value.output)];
  if (name.empty()) {
    Throw<ModelError>("{} cannot be exported", QuotedName(value.node->OutputName(value.output)));
  }
  return name;
}

std::optional<Shape> Exporter::ShapeOfInput(int input) const {
  const Entry& entry = node_->inputs()[static_cast<size_t>(input)];
  return shapes_[static_cast<size_t>(graph_.IndexOf(entry.node))][static_cast<size_t>(entry.output)].shape;
}

DType Exporter::DTypeOfInput(int input) const {
  const Entry& entry = node_->inputs()[static_cast<size_t>(input)];
  return dtypes_[static_cast<size_t>(graph_.IndexOf(entry.node))][static_cast<size_t>(entry.output)];
}

std::string Exporter::In(int input, DType dtype) {
  if (DTypeOfInput(input) == dtype) return In(input);
  const std::string cast = Add("Cast", {In(input)});
  Set("to", int64_t{NumberOf(dtype)});
  return cast;
}

int Exporter::RankOfInput(int input) const {
  const std::optional<Shape> shape = ShapeOfInput(input);
  if (!shape) Throw<ModelError>("it is not known how many axes its input has; declare the shape of the model's inputs");
  return shape->rank();
}

NodeProto* Exporter::AddNode(const char* op, const Names& inputs) {
  last_ = out_->add_node();
  last_->set_op_type(op);
  for (const std::string& input : inputs) last_->add_input(input);
  while (last_->input_size() > 0 && last_->input(last_->input_size() - 1).empty()) {
    last_->mutable_input()->RemoveLast();
  }
  return last_;
}

std::vector<std::string> Exporter::AllInputs() const {
  std::vector<std::string> inputs;
  for (size_t i = 0; i < node_->inputs().size(); ++i) inputs.push_back(In(static_cast<int>(i)));
  return inputs;
}

std::string Exporter::NewName(const char* what) { return given_.Next(fmt::format("{}_{}", node_->name(), what)); }

Exporter::Names Exporter::AddAll(const char* op, const Names& inputs, int outputs) {
  Names names;
  NodeProto* added = AddNode(op, inputs);
  for (int i = 0; i < outputs; ++i) {
    names.push_back(NewName(op));
    added->add_output(names.back());
  }
  added->set_name(names[0]);
  return names;
}

void Exporter::Out(const char* op, const Names& inputs, int output) {
  const std::string name =
      given_.Next(node_->num_outputs() == 1 || output == 0 ? node_->name() : node_->OutputName(output));
  NodeProto* added = AddNode(op, inputs);
  added->set_name(name);
  added->add_output(name);
  names_[node_.get()][static_cast<size_t>(output)] = name;
}

void Exporter::OutAll(const char* op, const Names& inputs, int outputs) {
  NodeProto* added = AddNode(op, inputs);
  added->set_name(given_.Next(node_->name()));
  for (int i = 0; i < outputs; ++i) {
    const std::string name = given_.Next(node_->OutputName(i));
    added->add_output(name);
    names_[node_.get()][static_cast<size_t>(i)] = name;
  }
}

void Exporter::AliasOutput(int output, const std::string& value) {
  names_[node_.get()][static_cast<size_t>(output)] = value;
}

AttributeProto* Exporter::AddAttribute(const char* key, AttributeType type) {
  AttributeProto* attribute = last_->add_attribute();
  attribute->set_name(key);
  attribute->set_type(type);
  return attribute;
}

void Exporter::Set(const char* key, int64_t value) { AddAttribute(key, ATTRIBUTE_INT)->set_i(value); }
void Exporter::Set(const char* key, double value) {
  AddAttribute(key, ATTRIBUTE_FLOAT)->set_f(static_cast<float>(value));
}
void Exporter::Set(const char* key, const GraphProto& body) { *AddAttribute(key, ATTRIBUTE_GRAPH)->mutable_g() = body; }
void Exporter::Set(const char* key, const char* value) { AddAttribute(key, ATTRIBUTE_STRING)->set_s(value); }
void Exporter::Set(const char* key, const std::vector<int64_t>& values) {
  AddAttribute(key, ATTRIBUTE_INTS)->mutable_ints()->Add(values.begin(), values.end());
}

void Exporter::Set(const char* key, const std::vector<std::string>& values) {
  AttributeProto* attribute = AddAttribute(key, ATTRIBUTE_STRINGS);
  for (const std::string& value : values) attribute->add_strings(value);
}

// Initializers of floating point are a model's parameters, if they have an axis.
std::string Exporter::Constant(const HostTensor& value, const char* what) {
  const std::string name = given_.Next(node_->name() + "_" + what);
  if (!IsFloat(value.dtype()) || value.shape().rank() == 0) {
    Fill(value, out_->add_initializer())->set_name(name);
    return name;
  }
  AddNode("Constant", {})->add_output(name);
  last_->set_name(name);
  Fill(value, AddAttribute("value", ATTRIBUTE_TENSOR)->mutable_t());
  return name;
}

std::string Exporter::Ints(const std::vector<int64_t>& values, const char* what) {
  HostTensor tensor(DType::kInt64, {static_cast<int64_t>(values.size())});
  std::ranges::copy(values, tensor.data<int64_t>().begin());
  return Constant(tensor, what);
}

std::string Exporter::Extents(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches,
                              const char* what) {
  if (std::ranges::all_of(batches, [](int64_t n) { return n == 0; })) return Ints(fixed, what);
  const auto tells = [&](const NodePtr& node) {
    const std::optional<Shape>& shape = shapes_[static_cast<size_t>(graph_.IndexOf(node))][0].shape;
    return node->is_variable() && ValueOf(model_, node->name()) == nullptr && shape && shape->rank() > 0 &&
           (*shape)[std::max(AxisOfLayout(*node, *shape), 0)] == kUnknownDim;
  };
  const auto input = std::ranges::find_if(graph_.nodes, tells);
  if (input == graph_.nodes.end()) Throw<ModelError>("its extents follow the batch, which no input tells");
  const Shape& shape = *shapes_[static_cast<size_t>(graph_.IndexOf(*input))][0].shape;
  const int64_t axis = std::max(AxisOfLayout(**input, shape), 0);
  const std::string batch = Add("Shape", {(*input)->name()});
  Set("start", axis);
  Set("end", axis + 1);
  Names extents;
  for (size_t i = 0; i < fixed.size(); ++i) {
    if (batches[i] == 0) {
      extents.push_back(Ints({fixed[i]}, what));
      continue;
    }
    std::string extent = batches[i] == 1 ? batch : Add("Mul", {batch, Ints({batches[i]}, what)});
    if (fixed[i] != 0) extent = Add("Add", {extent, Ints({fixed[i]}, what)});
    extents.push_back(extent);
  }
  const std::string all = Add("Concat", extents);
  Set("axis", int64_t{0});
  return all;
}

std::string Exporter::Pads(const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                           const std::vector<int64_t>& axes) {
  const auto rank = static_cast<size_t>(RankOfInput(0));
  std::vector<int64_t> pads(2 * rank);
  for (size_t i = 0; i < begin.size(); ++i) {
    const int64_t axis = axes.empty() ? static_cast<int64_t>(i) : axes[i];
    const auto place = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
    pads.at(place) = begin[i];
    pads.at(place + rank) = end[i];
  }
  return Ints(pads, "pads");
}

std::string Exporter::Number(double value, DType dtype) {
  return Constant(HostTensor::Full(dtype, {}, value), "number");
}

}  // namespace bindery::onnx

namespace bindery {

std::vector<std::string> OnnxExports() {
  std::vector<std::string> names;
  for (const auto& [name, row] : onnx::ExportRows()) names.push_back(name);
  return names;
}

}  // namespace bindery
