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
    case FieldKind::kDoubles: return At<std::vector<double>>(field, attrs);
    case FieldKind::kStrings: return At<std::vector<std::string>>(field, attrs);
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
    case FieldKind::kDoubles: return "a list of numbers";
    case FieldKind::kStrings: return "a list of strings";
    case FieldKind::kDType: return "the name of an element type";
    case FieldKind::kTensor: return "a tensor";
    case FieldKind::kEnum: break;
  }
  return "a name";
}

// The value with its type, short enough for a message.
std::string Describe(const AttrValue& value) {
  std::string text = ToString(value);
  if (text.size() > 4 * kMaxPrinted && !std::holds_alternative<std::vector<int64_t>>(value)) {
    text = text.substr(0, 4 * kMaxPrinted) + "...";
  }
  if (std::holds_alternative<std::string>(value)) return fmt::format("the string \"{}\"", text);
  static constexpr const char* kinds[] = {"",          "the integer ", "the number ", "",
                                          "the list ", "the list ",    "the list ",   "the tensor "};
  return kinds[value.index()] + text;
}

[[noreturn]] void ThrowWrongType(const FieldSpec& field, const AttrValue& value) {
  std::string expected = Expectation(field.kind);
  if (field.kind == FieldKind::kEnum) expected = fmt::format("one of {}", fmt::join(EnumChoices(field), ", "));
  Throw<ModelError>("attribute \"{}\": expected {}, got {}", field.name, expected, Describe(value));
}

// The alternative of `value` that the field takes. An integer is a number too if it is one exactly; a file does not
// say what an empty list is a list of.
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
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    if constexpr (std::is_same_v<T, std::vector<double>>) {
      std::vector<double> numbers;
      for (const int64_t integer : *integers) numbers.push_back(Take<double>(field, integer));
      return numbers;
    }
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      if (integers->empty()) return {};
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
    case FieldKind::kDoubles: return take(static_cast<std::vector<double>*>(address));
    case FieldKind::kStrings: return take(static_cast<std::vector<std::string>*>(address));
    case FieldKind::kTensor: return take(static_cast<TensorPtr*>(address));
    case FieldKind::kDType: return StoreDType(field, *static_cast<DType*>(address), value);
    case FieldKind::kEnum: return StoreEnum(field, address, value);
  }
}

// Bits, not values: -0.0 and NaN are kept by a file too.
bool SameStored(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  const auto same = [](double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); };
  if (const double* number = std::get_if<double>(&a)) return same(*number, std::get<double>(b));
  if (const auto* list = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*list, std::get<std::vector<double>>(b), same);
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
    case FieldKind::kDoubles: return "floats";
    case FieldKind::kStrings: return "strings";
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
  return std::visit(
      [](const auto& held) -> std::string {
        if constexpr (
            requires { held.begin() + 1; } && !requires { held.c_str(); }) {
          if (held.size() <= kMaxPrinted) return fmt::format("({})", fmt::join(held, ", "));
          return fmt::format("({}, ... {} in all)", fmt::join(held.begin(), held.begin() + kMaxPrinted, ", "),
                             held.size());
        } else if constexpr (requires { held->dtype(); }) {
          return held ? fmt::format("{} {}", held->dtype(), held->shape()) : "none";
        } else {
          return fmt::format("{}", held);
        }
      },
      value);
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
