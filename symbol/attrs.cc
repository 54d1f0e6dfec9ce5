#include "symbol/attrs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/names.h"

namespace bindery {
namespace {

using attrs_internal::FieldKind;
using attrs_internal::FieldSpec;
using attrs_internal::FieldSpecs;
using TensorPtr = std::shared_ptr<const HostTensor>;

constexpr size_t kMaxPrinted = 16;  // elements of a list and characters of a text in messages

template <class T>
const T& At(const FieldSpec& field, const void* attrs) {
  return *static_cast<const T*>(field.address(const_cast<void*>(attrs)));
}

std::string EnumNameOf(const FieldSpec& field, int value) {
  for (const EnumName& known : field.enum_names()) {
    if (known.value == value) return known.name;
  }
  Throw<ModelError>("attribute \"{}\": {} is not a value of its enum", field.name, value);
}

std::vector<std::string> EnumChoices(const FieldSpec& field) {
  std::vector<std::string> names;
  for (const EnumName& known : field.enum_names()) names.emplace_back(known.name);
  return names;
}

AttrValue Load(const FieldSpec& field, const void* attrs) {
  switch (field.kind) {
    case FieldKind::kBool: return At<bool>(field, attrs);
    case FieldKind::kInt: return At<int64_t>(field, attrs);
    case FieldKind::kDouble: return At<double>(field, attrs);
    case FieldKind::kString: return At<std::string>(field, attrs);
    case FieldKind::kInts: return At<std::vector<int64_t>>(field, attrs);
    case FieldKind::kDType: return std::string(ToString(At<DType>(field, attrs)));
    case FieldKind::kTensor: return At<TensorPtr>(field, attrs);
    case FieldKind::kEnum: break;
  }
  return EnumNameOf(field, field.load_enum(field.address(const_cast<void*>(attrs))));
}

const char* Expectation(FieldKind kind) {
  switch (kind) {
    case FieldKind::kBool: return "true or false";
    case FieldKind::kInt: return "an integer";
    case FieldKind::kDouble: return "a number";
    case FieldKind::kString: return "a string";
    case FieldKind::kInts: return "a list of integers";
    case FieldKind::kDType: return "the name of an element type";
    case FieldKind::kTensor: return "a tensor";
    case FieldKind::kEnum: break;
  }
  return "a name";
}

// The value with its type, short enough for a message.
std::string Describe(const AttrValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (text->size() <= 4 * kMaxPrinted) return fmt::format("the string \"{}\"", *text);
    return fmt::format("the string \"{}...\"", text->substr(0, 4 * kMaxPrinted));
  }
  static constexpr const char* kinds[] = {"", "the integer ", "the number ", "", "the list ", "the tensor "};
  return kinds[value.index()] + ToString(value);
}

[[noreturn]] void ThrowWrongType(const FieldSpec& field, const AttrValue& value) {
  std::string expected = Expectation(field.kind);
  if (field.kind == FieldKind::kEnum) expected = fmt::format("one of {}", fmt::join(EnumChoices(field), ", "));
  Throw<ModelError>("attribute \"{}\": expected {}, got {}", field.name, expected, Describe(value));
}

// The alternative of `value` that the field takes. An integer is a number too if it is one exactly.
template <class T>
T Take(const FieldSpec& field, const AttrValue& value) {
  if (const T* exact = std::get_if<T>(&value)) return *exact;
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    if constexpr (std::is_same_v<T, double>) {
      constexpr int64_t kExact = int64_t{1} << 53;
      if (-kExact <= *integer && *integer <= kExact) return static_cast<double>(*integer);
      Throw<ModelError>("attribute \"{}\": {} is too large to be an exact number", field.name, *integer);
    }
    if constexpr (std::is_same_v<T, bool>) {
      if (*integer == 0 || *integer == 1) return *integer == 1;
    }
  }
  ThrowWrongType(field, value);
}

void StoreEnum(const FieldSpec& field, void* address, const AttrValue& value) {
  const auto& name = Take<std::string>(field, value);
  for (const EnumName& known : field.enum_names()) {
    if (name == known.name) return field.store_enum(address, known.value);
  }
  ThrowWrongType(field, value);
}

void StoreDType(const FieldSpec& field, DType& dtype, const AttrValue& value) {
  try {
    dtype = ParseDType(Take<std::string>(field, value));
  } catch (const ModelError&) {
    throw;
  } catch (const Error& error) {
    Throw<ModelError>("attribute \"{}\": {}", field.name, error.message());
  }
}

void Store(const FieldSpec& field, void* attrs, const AttrValue& value) {
  void* address = field.address(attrs);
  const auto take = [&]<class T>(T* member) { *member = Take<T>(field, value); };
  switch (field.kind) {
    case FieldKind::kBool: return take(static_cast<bool*>(address));
    case FieldKind::kInt: return take(static_cast<int64_t*>(address));
    case FieldKind::kDouble: return take(static_cast<double*>(address));
    case FieldKind::kString: return take(static_cast<std::string*>(address));
    case FieldKind::kInts: return take(static_cast<std::vector<int64_t>*>(address));
    case FieldKind::kTensor: return take(static_cast<TensorPtr*>(address));
    case FieldKind::kDType: return StoreDType(field, *static_cast<DType*>(address), value);
    case FieldKind::kEnum: return StoreEnum(field, address, value);
  }
}

// Bits, not values: -0.0 and NaN are kept by a file too.
bool SameStored(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const double* number = std::get_if<double>(&a)) {
    return std::bit_cast<uint64_t>(*number) == std::bit_cast<uint64_t>(std::get<double>(b));
  }
  return a == b;
}

std::string TypeName(const FieldSpec& field) {
  switch (field.kind) {
    case FieldKind::kBool: return "bool";
    case FieldKind::kInt: return "int";
    case FieldKind::kDouble: return "float";
    case FieldKind::kString: return "string";
    case FieldKind::kInts: return "ints";
    case FieldKind::kDType: return "dtype";
    case FieldKind::kTensor: return "tensor";
    case FieldKind::kEnum: break;
  }
  return fmt::format("{}", fmt::join(EnumChoices(field), " | "));
}

std::string NamesOf(const AttrsType& type) {
  std::string names;
  for (const FieldInfo& field : type.Fields()) names += (names.empty() ? "" : ", ") + field.name;
  return names.empty() ? "no attributes" : names;
}

}  // namespace

namespace attrs_internal {

void Fill(FieldSpecs fields, void* attrs, const AttrMap& map) {
  for (const auto& [name, value] : map) {
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const FieldSpec& f) { return f.name == name; });
    if (field == fields.end()) {
      std::vector<std::string> known;
      for (const FieldSpec& spec : fields) known.emplace_back(spec.name);
      Throw<ModelError>("unknown attribute \"{}\"{}", name, NameHint(name, known));
    }
    Store(*field, attrs, value);
  }
}

AttrMap Collect(FieldSpecs fields, const void* attrs, const void* defaults) {
  AttrMap map;
  for (const FieldSpec& field : fields) {
    AttrValue value = Load(field, attrs);
    if (defaults != nullptr && SameStored(value, Load(field, defaults))) continue;
    map.emplace(field.name, std::move(value));
  }
  return map;
}

std::vector<FieldInfo> Describe(FieldSpecs fields, const void* defaults) {
  std::vector<FieldInfo> infos;
  for (const FieldSpec& field : fields) {
    infos.push_back({field.name, TypeName(field), ToString(Load(field, defaults)), field.doc});
  }
  return infos;
}

void ThrowOtherType(const AttrsType& expected, const AttrsType& got) {
  Throw("attributes of another operator: asked for those with ({}), but these have ({})", NamesOf(expected),
        NamesOf(got));
}

}  // namespace attrs_internal

std::string ToString(const AttrValue& value) {
  struct Printer {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t integer) const { return fmt::format("{}", integer); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<int64_t>& list) const {
      if (list.size() <= kMaxPrinted) return fmt::format("({})", fmt::join(list, ", "));
      return fmt::format("({}, ... {} in all)", fmt::join(list.begin(), list.begin() + kMaxPrinted, ", "), list.size());
    }
    std::string operator()(const TensorPtr& tensor) const {
      return tensor ? fmt::format("{} {}", tensor->dtype(), tensor->shape()) : "none";
    }
  };
  return std::visit(Printer{}, value);
}

AnyAttrs::AnyAttrs() : type_(&AttrsOf<NoAttrs>()) {
  static const std::shared_ptr<const void> value = std::make_shared<const NoAttrs>();
  value_ = value;
}

AttrMap AnyAttrs::ToMap() const { return type_->ToMap(value_.get(), false); }

AttrMap AnyAttrs::ToFullMap() const { return type_->ToMap(value_.get(), true); }

bool AnyAttrs::operator==(const AnyAttrs& other) const {
  if (type_ != other.type_) return false;
  return value_ == other.value_ || type_->Equal(value_.get(), other.value_.get());
}

}  // namespace bindery
