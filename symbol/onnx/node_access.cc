// What import functions ask of a node, and what they say.
#include <algorithm>

#include "base/checked.h"
#include "symbol/model/source.h"
#include "symbol/onnx/importer.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"

namespace bindery::onnx {
// --- Attributes.

const AttributeProto* Importer::Find(const char* key) const {
  asked_.insert(key);
  const auto& list = node_->attribute();
  const auto found = std::ranges::find_if(list, [&](const AttributeProto& a) { return a.name() == key; });
  if (found == list.end() || found->ref_attr_name().empty()) return found == list.end() ? nullptr : &*found;
  const auto given = frame_->attributes.find(found->ref_attr_name());  // of the function's call
  return given == frame_->attributes.end() ? nullptr : given->second;
}

// The type was not said before IR 2, and some writers still do not.
const AttributeProto* Importer::FindOf(const char* key, AttributeType type, const char* kind) const {
  const AttributeProto* attribute = Find(key);
  if (attribute == nullptr) return nullptr;
  const auto is_there = [&] {
    switch (type) {
      case ATTRIBUTE_INT: return attribute->has_i();
      case ATTRIBUTE_FLOAT: return attribute->has_f();
      case ATTRIBUTE_STRING: return attribute->has_s();
      case ATTRIBUTE_TENSOR: return attribute->has_t();
      case ATTRIBUTE_GRAPH: return attribute->has_g();
      default:  // a list may be empty
        return attribute->type() == type ||
               !(attribute->has_i() || attribute->has_f() || attribute->has_s() || attribute->has_t());
    }
  };
  if ((attribute->type() != 0 && attribute->type() != type) || !is_there()) {
    Throw<ModelError>("attribute \"{}\": expected {}", key, kind);
  }
  return attribute;
}

int64_t Importer::Int(const char* key, int64_t otherwise) const {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_INT, "an integer");
  return attribute == nullptr ? otherwise : attribute->i();
}

double Importer::Float(const char* key, double otherwise) const {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_FLOAT, "a number");
  return attribute == nullptr ? otherwise : attribute->f();
}

std::string Importer::String(const char* key, const std::string& otherwise) const {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_STRING, "a string");
  return attribute == nullptr ? otherwise : attribute->s();
}

int Importer::NumberOf(const char* key, int otherwise, std::span<const EnumName> names) const {
  if (!HasAttribute(key)) return otherwise;
  const std::string got = String(key, "");
  std::string all;
  for (const EnumName& name : names) {
    if (got == name.name) return name.value;
    all += (all.empty() ? "" : ", ") + std::string(name.name);
  }
  Throw<ModelError>("attribute \"{}\": expected one of {}, got {}", key, all, QuotedName(got));
}

std::vector<int64_t> Importer::Ints(const char* key) const {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_INTS, "integers");
  if (attribute == nullptr) return {};
  return {attribute->ints().begin(), attribute->ints().end()};
}

std::vector<double> Importer::Floats(const char* key) const {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_FLOATS, "numbers");
  if (attribute == nullptr) return {};
  return {attribute->floats().begin(), attribute->floats().end()};
}

std::vector<std::string> Importer::Strings(const char* key) const {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_STRINGS, "strings");
  if (attribute == nullptr) return {};
  return {attribute->strings().begin(), attribute->strings().end()};
}

std::optional<HostTensor> Importer::Tensor(const char* key, int* bits) const {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_TENSOR, "a tensor");
  if (attribute == nullptr) return std::nullopt;
  if (bits != nullptr) *bits = PackedBits(attribute->t());
  try {
    return tensors_->Read(attribute->t());
  } catch (const Error& error) {
    Throw<ModelError>("attribute \"{}\": {}", key, error.message());
  }
}

void Importer::Ignore(std::initializer_list<const char*> keys) const { asked_.insert(keys.begin(), keys.end()); }

// --- Inputs.

bool Importer::Has(int input) const {
  if (input >= num_inputs() || node_->input(input).empty()) return false;
  const ValuePtr* value = Lookup(node_->input(input));
  return value == nullptr || *value != nullptr;  // null: left out where the function is called
}

const ValuePtr& Importer::ValueOf(int input) const {
  if (!Has(input)) Throw<ModelError>("input {} is missing", input);
  const ValuePtr* value = Lookup(node_->input(input));
  if (value == nullptr) {
    Throw<ModelError>("input {}: nothing before it is called {}", input, QuotedName(node_->input(input)));
  }
  return *value;
}

// One value by one name is one parameter, however often it is asked for, as at every step of a loop.
Symbol Importer::MakeParameter(const std::string& name, std::shared_ptr<const HostTensor> value) {
  Symbol& parameter = made_[{name, value.get()}];
  if (!parameter.empty()) return parameter;
  const std::string own = variables_.Next(name);
  parameter = Variable(own, {.shape = value->shape(), .dtype = value->dtype()});
  types_->Declare(parameter, value->dtype(), value->shape());
  parameters_.emplace(own, std::move(value));
  return parameter;
}

Symbol Importer::SymbolOf(Value& value) {
  if (!value.symbol.empty()) return value.symbol;
  // A single number that no layer asks for as a weight is a factor or a shift of the file's maker.
  const bool is_weight = value.is_initializer && IsFloat(value.constant->dtype()) &&
                         value.constant->shape().rank() > 0 && value.constant->elements() != 1;
  value.symbol = is_weight ? MakeParameter(value.name, value.constant)
                           : bindery::Constant(*value.constant, prefix_.empty() ? value.name : "");
  return value.symbol;
}

std::vector<Symbol> Importer::AllInputs() {
  std::vector<Symbol> inputs;
  for (int i = 0; i < num_inputs(); ++i) inputs.push_back(In(i));
  return inputs;
}

const HostTensor* Importer::Constant(int input) const { return ValueOf(input)->constant.get(); }

const HostTensor& Importer::Static(int input) const {
  const HostTensor* constant = Constant(input);
  if (constant == nullptr) {
    Throw<ModelError>("input {} is computed, but has to be known while the file is read{}", input, HowToState());
  }
  return *constant;
}

std::vector<int64_t> Importer::StaticInts(int input) const {
  const HostTensor& tensor = Static(input);
  if (IsFloat(tensor.dtype())) Throw<ModelError>("input {}: expected integers, got {}", input, tensor.dtype());
  const HostTensor numbers = tensor.Cast(DType::kInt64);
  return {numbers.data<int64_t>().begin(), numbers.data<int64_t>().end()};
}

int64_t Importer::StaticNumber(int input) const {
  const std::vector<int64_t> numbers = StaticInts(input);
  if (numbers.size() != 1) Throw<ModelError>("input {}: expected one number, got {}", input, numbers.size());
  return numbers[0];
}

Extents Importer::StaticExtents(int input) const {
  Extents extents;
  if (const ValuePtr& value = ValueOf(input); value->numbers && AreKnown(*value->numbers)) {
    for (const std::optional<Extent>& number : value->numbers->values) extents.push_back(*number);
    return extents;
  }
  for (const int64_t number : StaticInts(input)) extents.push_back({number, 0});
  return extents;
}

bool Importer::IsStatic(int input) const {
  const Value& value = *ValueOf(input);
  return (value.numbers && AreKnown(*value.numbers)) || value.constant != nullptr;
}

int64_t Importer::LengthOf(int input) {
  const Shape shape = ShapeOf(In(input));
  if (shape.rank() != 1 || !shape.IsKnown()) {
    Throw<ModelError>("input {}: expected a list of known length, got {}{}", input, shape, HowToState());
  }
  return shape[0];
}

std::optional<Numbers> Importer::NumbersOf(int input) const {
  const Value& value = *ValueOf(input);
  if (value.numbers) return value.numbers;
  if (!value.constant || value.is_input || value.bits != 0 || IsFloat(value.constant->dtype()) ||
      value.constant->shape().rank() > 1 || value.constant->elements() > int64_t{kMaxNumbers}) {
    return std::nullopt;
  }
  if (value.constant->dtype() == DType::kUInt64 &&  // of which int64 has not all
      std::ranges::any_of(value.constant->data<uint64_t>(), [](uint64_t number) { return number > INT64_MAX; })) {
    return std::nullopt;
  }
  const Extents extents = StaticExtents(input);
  return Numbers{{extents.begin(), extents.end()}, value.constant->shape().rank() == 0, value.constant->dtype()};
}

std::optional<Numbers> Importer::OpenNumbers(int input) {
  const Value& value = *ValueOf(input);
  if (value.symbol.empty() || value.constant) return std::nullopt;
  const std::optional<DType> dtype = types_->DTypeOf(value.symbol);
  const std::optional<PartialExtents> extents = types_->ExtentsOf(value.symbol);
  if (!dtype || IsFloat(*dtype) || !extents || extents->size() > 1) return std::nullopt;
  const std::optional<Extent> count = extents->empty() ? Extent{1, 0} : (*extents)[0];
  if (!count || count->batches != 0 || count->fixed > int64_t{kMaxNumbers}) return std::nullopt;
  return Numbers{PartialExtents(static_cast<size_t>(count->fixed)), extents->empty(), *dtype};
}

std::vector<int64_t> Importer::AttributeOrInput(const char* key, int input) const {
  std::vector<int64_t> list = Ints(key);
  return Has(input) ? StaticInts(input) : list;
}

bool Importer::IsOnlyReader(int input) const {
  const std::string& name = node_->input(input);
  return frame_->values.contains(name) && ReadersOf(name) == 1;
}

const HostTensor* Importer::Held(int input) const {
  const Value& value = *ValueOf(input);
  return value.is_input ? nullptr : value.constant.get();
}

const HostTensor* Importer::Weight(int input) const {
  const HostTensor* held = Held(input);
  return held != nullptr && IsFloat(held->dtype()) ? held : nullptr;
}

Symbol Importer::WeightIn(int input) {
  Value& value = *ValueOf(input);
  const bool is_variable = !value.symbol.empty() && value.symbol.entry().node->is_variable();
  if (Weight(input) == nullptr || is_variable) return In(input);
  return value.symbol = MakeParameter(value.name, value.constant);
}

Symbol Importer::IntegersIn(int input) {
  Value& value = *ValueOf(input);
  const bool is_weight = value.is_initializer && value.constant && !value.is_input && value.symbol.empty() &&
                         value.constant->shape().rank() > 0 && value.constant->elements() != 1;
  if (is_weight) value.symbol = MakeParameter(value.name, value.constant);
  return In(input);
}

Symbol Importer::Parameter(int input, const std::string& how,
                           const std::function<HostTensor(const HostTensor&)>& change) {
  Value& value = *ValueOf(input);
  Symbol& changed = value.changed[how];
  if (!changed.empty()) return changed;
  const std::string name = IsOnlyReader(input) ? value.name : value.name + "_" + how;
  return changed = MakeParameter(name, std::make_shared<const HostTensor>(change(*value.constant)));
}

Symbol Importer::List(const std::vector<int64_t>& values) const {
  HostTensor tensor(DType::kInt64, {static_cast<int64_t>(values.size())});
  std::ranges::copy(values, tensor.data<int64_t>().begin());
  return bindery::Constant(std::move(tensor));
}

// --- Types.

DType Importer::DTypeOf(const Symbol& value) {
  const std::optional<DType> dtype = types_->DTypeOf(value);
  if (!dtype) Throw<ModelError>("the element type of its input is not known");
  return *dtype;
}

PartialExtents Importer::ExtentsOf(const Symbol& value) {
  std::optional<PartialExtents> extents = types_->ExtentsOf(value);
  if (!extents) Throw<ModelError>("it is not known how many axes its input has{}", HowToState());
  return *std::move(extents);
}

int Importer::AxisOf(const Symbol& value, int64_t axis) {
  const int rank = RankOf(value);
  if (axis < -rank || axis >= rank) Throw<ModelError>("axis {} of an input with {} axes", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Shape Importer::ShapeOf(const Symbol& value) {
  Shape shape;
  for (const std::optional<Extent>& extent : ExtentsOf(value)) {
    shape = shape.Insert(shape.rank(), extent && extent->batches == 0 ? extent->fixed : kUnknownDim);
  }
  return shape;
}

std::string Importer::HowToState() const {
  if (open_.empty()) return {};
  return fmt::format("; the file leaves open {}: state them in the file or in the options of ParseOnnx (shapes)",
                     open_);
}

std::optional<int64_t> Importer::BakedBatch(const Symbol& value, int axis) {
  const PartialExtents extents = ExtentsOf(value);
  const auto place = static_cast<size_t>(axis);
  if (place >= extents.size() || extents[place] != Extent{0, 1}) return std::nullopt;
  return file_batch_;
}

// --- Outputs.

bool Importer::IsRead(int output) const { return Wanted(output) && ReadersOf(node_->output(output)) > 0; }

void Importer::OnlyFirst() const {
  for (int i = 1; i < num_outputs(); ++i) {
    if (IsRead(i)) Throw<ModelError>("only the first output can be had");
  }
}

void Importer::Out(int output, const Symbol& value) {
  if (Wanted(output)) Define(node_->output(output), {.symbol = value[0]});
}

void Importer::OutConstant(HostTensor value, int bits) {
  if (!Wanted(0)) return;
  Define(node_->output(0), {.constant = std::make_shared<const HostTensor>(std::move(value)), .bits = bits});
}

void Importer::OutHeld(int input, const std::optional<Shape>& shape) {
  if (!Wanted(0)) return;
  const Value& value = *ValueOf(input);
  std::shared_ptr<const HostTensor> constant = value.constant;
  if (shape) {
    ChargeBytes(constant->bytes());
    constant = std::make_shared<const HostTensor>(constant->Reshape(*shape));
  }
  Define(node_->output(0), {.constant = constant, .is_initializer = value.is_initializer, .bits = value.bits});
}

void Importer::OutValue(int output, const ValuePtr& value) {
  if (Wanted(output)) Define(node_->output(output), value);
}

void Importer::OutFixed(const Numbers& numbers) {
  const auto count = static_cast<int64_t>(numbers.values.size());
  HostTensor tensor(DType::kInt64, numbers.is_scalar ? Shape{} : Shape{count});
  std::ranges::transform(numbers.values, tensor.data<int64_t>().begin(),
                         [](const auto& number) { return number->fixed; });
  OutConstant(tensor.Cast(numbers.dtype));
}

// --- What several families use.

ImportFn Unary(const SymbolFn& f) {
  return [f](Importer& im) { im.Out(f(im.In(0), im.name())); };
}

bool CanReshapeTo(const PartialExtents& extents) { return std::ranges::count(extents, std::optional<Extent>()) <= 1; }

Symbol ReshapeTo(const Symbol& x, const PartialExtents& extents, const std::string& name) {
  if (!CanReshapeTo(extents)) {
    Throw<ModelError>("more than one extent of its input is not known; state the shapes of the model's inputs");
  }
  Extents to;
  for (const std::optional<Extent>& extent : extents) to.push_back(extent.value_or(Extent{-1, 0}));
  const bool empty = std::ranges::count(to, Extent{0, 0}) > 0 && std::ranges::count(to, Extent{-1, 0}) == 0;
  return Reshape(x, {.shape = rule::FixedParts(to), .batches = rule::BatchParts(to), .allow_zero = empty}, name);
}

std::optional<Extent> Product(std::span<const std::optional<Extent>> extents) {
  Extent product{1, 0};
  for (const std::optional<Extent>& extent : extents) {
    if (!extent || (extent->batches != 0 && product.batches != 0)) return std::nullopt;
    product = extent->batches == 0 ? product * extent->fixed : *extent * product.fixed;
  }
  return product;
}

}  // namespace bindery::onnx
